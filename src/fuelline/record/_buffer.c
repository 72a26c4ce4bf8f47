/* What the hooks of quick steps do at every call.

   A training step leaves nothing of ours in the caches, and then it is not the work that costs but
   each object and each line of bytecode that has to be fetched from memory. Here a call needs two
   small structs and a few lines of code. Everything runs under the GIL, and no code of the job's
   runs between two changes of a struct. buffer.py says what the fields and functions mean; `RecordBuffer`
   there does the same (tests/unit/record/test_buffer.py), except that it cannot notice collections. */

#define Py_LIMITED_API 0x030A0000
#define _GNU_SOURCE 1
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LAYOUT = 7 }; /* of what Python and this file say to each other; see buffer.py */
enum { START, LENGTH, FIELDS_AT, FIELDS = 5, TAIL = FIELDS_AT + FIELDS, WORDS }; /* of a record */

/* Names below are shared with Python, in this order (tests/unit/record/test_buffer.py): the fields of a
   record as timeline/events.py has them for its kind, and the tuples of buffer.py. */
enum wait_field { WAIT_SOURCE_ID, WAIT_SAMPLES, WAIT_SIZE_BYTES, WAIT_CPU_NS, WAIT_POSITION };
enum backward_field { BACKWARD_GRAPH_NODES, BACKWARD_CPU_NS, BACKWARD_ENGINE_CPU_NS };
enum step_field { STEP_STEPPER_ID, STEP_STEP_KIND, STEP_CPU_CLOCK_NS };
enum mark_field { MARK_DEVICE, MARK_DEVICE_NS, MARK_CLOCK, MARK_STREAM, MARK_PLACE };
enum gc_field { GC_GENERATION, GC_COLLECTED, GC_FIELDS };
enum iterator_note { NOTE_SOURCE_ID, NOTE_BATCH_SIZE, NOTE_ENOUGH, NOTE_FIELDS };
enum { NOT_MEASURED = -1 };
enum { CPU_CLOCK_EVERY_NS = 2000000 }; /* buffer.py has the same */

/* Python 3.10 has these, and 3.11 made them part of the stable ABI as they were: PEP 3118 and
   https://docs.python.org/3/whatsnew/3.11.html#c-api-changes */
#define PyBUF_WRITABLE 0x0001
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *, Py_buffer *, int);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *);

typedef struct {
    PyObject_HEAD
    unsigned long trainer;
    long long tid, write_at, fetched, born_ns, clock_read_ns;
    unsigned char *phase;
    size_t count, room; /* words */
    int64_t *words;
    long long collection_start, collection_least, collection_tail;
    Py_buffer shown;
    unsigned char unseen; /* the phase while none is shown */
} RecordBuffer;

typedef struct {
    PyObject_HEAD
    RecordBuffer *buffer;
    long long quick_calls;
    char is_inside;
} QuickCalls;

typedef struct {
    unsigned char before, after; /* phases in and after a call */
    int64_t tail;
} WaitPhases;

typedef struct {
    PyObject_HEAD
    QuickCalls *state;
    PyObject *hook, *original, *otherwise, *write;
    int64_t tail;
    PyObject *note, *yielded, *outstanding, *is_training, *look; /* of `take` only */
    WaitPhases training, evaluating;
} Quick;

typedef struct {
    int64_t start, end, tid; /* tid: of the thread that was the trainer at the start */
} Call;

typedef struct {
    int64_t at, place, stream;
    PyObject *event;
} Mark;

typedef struct {
    PyObject_HEAD
    RecordBuffer *buffer;
    PyObject *clock, *make_event, *is_capturing, *stream, *latest, *marked_stream, *spare;
    Mark *pending; /* a ring */
    size_t first, count, most;
    long long stream_id, device, number, latest_ns, marked_ns, fresh, beginnings, resuming, tail;
    char is_full, has_beside;
} MarkQueue;

static PyTypeObject *buffer_type, *calls_type, *quick_type, *marks_type; /* one of each, however often imported */
static __thread int64_t known_tid;

/* The thread as the kernel knows it: another one may get the Python identifier of one that ended. */
static int64_t own_tid(void)
{
    if (!known_tid) known_tid = syscall(SYS_gettid);
    return known_tid;
}

static void *new_object(PyTypeObject *type)
{
    return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

static void free_object(void *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

/* The thread's CPU time so far: a call of the kernel, so not at every step of a quick job. */
static int64_t cpu_clock_ns(RecordBuffer *self, int64_t now)
{
    if (now - self->clock_read_ns < CPU_CLOCK_EVERY_NS) return NOT_MEASURED;
    self->clock_read_ns = now;
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

static void hide_phase(RecordBuffer *self)
{
    self->phase = &self->unseen;
    if (self->shown.obj) PyBuffer_Release(&self->shown);
}

static PyObject *buffer_reset(RecordBuffer *self, PyObject *unused)
{
    (void)unused;
    known_tid = 0; /* this may be a forked child */
    self->trainer = 0;
    self->tid = self->write_at = self->fetched = self->clock_read_ns = 0;
    self->count = 0;
    self->unseen = 0;
    self->born_ns = now_ns();
    hide_phase(self);
    Py_RETURN_NONE;
}

static PyObject *buffer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    RecordBuffer *self = new_object(type);
    (void)args, (void)kwargs;
    if (self) self->phase = &self->unseen; /* the rest is zeros */
    return (PyObject *)self;
}

static void buffer_dealloc(RecordBuffer *self)
{
    hide_phase(self);
    free(self->words);
    free_object(self);
}

static PyObject *buffer_show(RecordBuffer *self, PyObject *buffer)
{
    Py_buffer shown;
    if (PyObject_GetBuffer(buffer, &shown, PyBUF_WRITABLE)) return NULL;
    if (shown.len < 1) {
        PyBuffer_Release(&shown);
        PyErr_SetString(PyExc_ValueError, "no room for a phase");
        return NULL;
    }
    hide_phase(self);
    self->shown = shown;
    self->phase = shown.buf;
    Py_RETURN_NONE;
}

static PyObject *buffer_take(RecordBuffer *self, PyObject *unused)
{
    PyObject *all = PyBytes_FromStringAndSize((char *)self->words,
                                              (Py_ssize_t)(self->count * sizeof(int64_t)));
    (void)unused;
    if (all) self->count = 0;
    return all;
}

static int64_t *reserve(RecordBuffer *self)
{
    if (self->count + WORDS > self->room) {
        size_t room = self->room ? 2 * self->room : 4096;
        int64_t *words = realloc(self->words, room * sizeof(int64_t));
        if (!words) {
            PyErr_NoMemory();
            return NULL;
        }
        self->words = words;
        self->room = room;
    }
    return self->words + self->count;
}

static int add(RecordBuffer *self, int64_t start, int64_t end, const int64_t *fields, int64_t tail)
{ /* the tail has its thread */
    int64_t *record;
    if (start < self->born_ns) return 0;
    record = reserve(self);
    if (!record) return -1;
    record[START] = start;
    record[LENGTH] = end - start;
    memcpy(record + FIELDS_AT, fields, FIELDS * sizeof(int64_t));
    record[TAIL] = tail;
    self->count += WORDS;
    return end >= self->write_at;
}

/* All before anything is kept: what only says that it is an integer may run any code. */
static int read_integers(PyObject *const *given, int count, int64_t *into)
{
    for (int i = 0; i < count; i++) {
        into[i] = PyLong_AsLongLong(given[i]);
        if (into[i] == -1 && PyErr_Occurred()) return -1;
    }
    return 0;
}

static PyObject *as_bool(int is_true)
{
    return is_true < 0 ? NULL : PyBool_FromLong(is_true);
}

static int is_as_many(Py_ssize_t count, Py_ssize_t wanted)
{
    if (count == wanted) return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments, not %zd", wanted, count);
    return 0;
}

static PyObject *buffer_keep(RecordBuffer *self, PyObject *const *given, Py_ssize_t count)
{
    int64_t in[WORDS]; /* as a record, with its end in place of its length */
    if (!is_as_many(count, WORDS) || read_integers(given, WORDS, in)) return NULL;
    return as_bool(add(self, in[START], in[LENGTH], in + FIELDS_AT, in[TAIL] | self->tid));
}

static PyObject *buffer_mark(RecordBuffer *self, PyObject *const *given, Py_ssize_t count)
{
    enum { ENTRIES, THING, ENDING, ARGUMENTS };
    enum { REFERENCE, NUMBER }; /* of an entry of Identities */
    int64_t now = now_ns(), tail, fields[FIELDS] = {0};
    PyObject *key, *entry;
    if (!is_as_many(count, ARGUMENTS)) return NULL;
    if (own_tid() != self->tid) Py_RETURN_NONE;
    tail = PyLong_AsLongLong(given[ENDING]);
    key = PyLong_FromVoidPtr(given[THING]);
    if (!key) return NULL;
    entry = PyDict_GetItemWithError(given[ENTRIES], key);
    Py_DECREF(key);
    if (entry && PyWeakref_GetObject(PyTuple_GetItem(entry, REFERENCE)) == given[THING])
        fields[STEP_STEPPER_ID] = PyLong_AsLongLong(PyTuple_GetItem(entry, NUMBER));
    if (PyErr_Occurred()) return NULL;
    if (!fields[STEP_STEPPER_ID]) Py_RETURN_NONE;
    fields[STEP_CPU_CLOCK_NS] = cpu_clock_ns(self, now);
    return as_bool(add(self, now, now, fields, tail | self->tid));
}

static PyObject *buffer_watch_collections(RecordBuffer *self, PyObject *const *given, Py_ssize_t count)
{
    enum { LEAST, ENDING, ARGUMENTS };
    int64_t in[ARGUMENTS];
    if (!is_as_many(count, ARGUMENTS) || read_integers(given, ARGUMENTS, in)) return NULL;
    self->collection_least = in[LEAST];
    self->collection_tail = in[ENDING];
    Py_RETURN_NONE;
}

/* A callback of the collector; whatever it would raise is nobody's to catch. */
static PyObject *buffer_notice(RecordBuffer *self, PyObject *const *given, Py_ssize_t count)
{
    enum { MOMENT, FACTS, ARGUMENTS };
    int64_t now = now_ns(), fields[FIELDS] = {0};
    static const char *const names[] = {[GC_GENERATION] = "generation", [GC_COLLECTED] = "collected"};
    if (count != ARGUMENTS || !PyUnicode_Check(given[MOMENT]) || !PyDict_Check(given[FACTS]))
        Py_RETURN_NONE;
    if (!PyUnicode_CompareWithASCIIString(given[MOMENT], "start")) {
        self->collection_start = now;
        Py_RETURN_NONE;
    }
    if (!self->collection_start || now - self->collection_start < self->collection_least)
        Py_RETURN_NONE;
    for (int i = 0; i < GC_FIELDS; i++) {
        PyObject *value = PyDict_GetItemString(given[FACTS], names[i]);
        if (value && PyLong_CheckExact(value)) fields[i] = PyLong_AsLongLong(value);
    }
    add(self, self->collection_start, now, fields, self->collection_tail | own_tid());
    PyErr_Clear();
    Py_RETURN_NONE;
}

static PyObject *buffer_get_phase(RecordBuffer *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(*self->phase);
}

static int buffer_set_phase(RecordBuffer *self, PyObject *value, void *unused)
{
    long phase = value ? PyLong_AsLong(value) : -1;
    (void)unused;
    if (PyErr_Occurred()) return -1;
    if (phase < 0 || phase > 255) {
        PyErr_Format(PyExc_ValueError, "%ld is no phase", phase);
        return -1;
    }
    *self->phase = (unsigned char)phase;
    return 0;
}

static PyMethodDef buffer_methods[] = {
    {"reset", (PyCFunction)buffer_reset, METH_NOARGS, NULL},
    {"show", (PyCFunction)buffer_show, METH_O, NULL},
    {"take", (PyCFunction)buffer_take, METH_NOARGS, NULL},
    {"keep", (PyCFunction)(void (*)(void))buffer_keep, METH_FASTCALL, NULL},
    {"watch_collections", (PyCFunction)(void (*)(void))buffer_watch_collections, METH_FASTCALL, NULL},
    {"notice", (PyCFunction)(void (*)(void))buffer_notice, METH_FASTCALL, NULL},
    {"mark", (PyCFunction)(void (*)(void))buffer_mark, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef buffer_members[] = {
    {"trainer", T_ULONG, offsetof(RecordBuffer, trainer), 0, NULL},
    {"tid", T_LONGLONG, offsetof(RecordBuffer, tid), 0, NULL},
    {"write_at", T_LONGLONG, offsetof(RecordBuffer, write_at), 0, NULL},
    {"fetched", T_LONGLONG, offsetof(RecordBuffer, fetched), 0, NULL},
    {"born_ns", T_LONGLONG, offsetof(RecordBuffer, born_ns), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef buffer_getset[] = {
    {"phase", (getter)buffer_get_phase, (setter)buffer_set_phase, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot buffer_slots[] = {
    {Py_tp_new, buffer_new},
    {Py_tp_dealloc, buffer_dealloc},
    {Py_tp_methods, buffer_methods},
    {Py_tp_members, buffer_members},
    {Py_tp_getset, buffer_getset},
    {0, NULL},
};
static PyType_Spec buffer_spec = {
    .name = "fuelline.record._buffer.RecordBuffer",
    .basicsize = sizeof(RecordBuffer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = buffer_slots,
};

static PyObject *calls_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *buffer;
    QuickCalls *self;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!", buffer_type, &buffer)) return NULL;
    self = new_object(type);
    if (self) {
        Py_INCREF(buffer);
        self->buffer = (RecordBuffer *)buffer;
    }
    return (PyObject *)self;
}

static void calls_dealloc(QuickCalls *self)
{
    Py_XDECREF((PyObject *)self->buffer);
    free_object(self);
}

static PyMemberDef calls_members[] = {
    {"quick_calls", T_LONGLONG, offsetof(QuickCalls, quick_calls), 0, NULL},
    {"is_inside", T_BOOL, offsetof(QuickCalls, is_inside), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot calls_slots[] = {
    {Py_tp_new, calls_new},
    {Py_tp_dealloc, calls_dealloc},
    {Py_tp_members, calls_members},
    {0, NULL},
};
static PyType_Spec calls_spec = {
    .name = "fuelline.record._buffer.QuickCalls",
    .basicsize = sizeof(QuickCalls),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = calls_slots,
};

/* TakeSettings: note, yielded, outstanding, is_training, look, training, evaluating; the last two are
   WaitPhases: before, after, tail. */
static int quick_set_take(Quick *self, PyObject *settings)
{
    PyObject *note, *yielded, *outstanding, *is_training, *look;
    WaitPhases *training = &self->training, *evaluating = &self->evaluating;
    if (settings == Py_None) return 0;
    if (!PyArg_ParseTuple(settings, "UUUOO(bbL)(bbL)", &note, &yielded, &outstanding, &is_training,
                          &look, &training->before, &training->after, &training->tail,
                          &evaluating->before, &evaluating->after, &evaluating->tail))
        return -1;
    self->note = Py_NewRef(note);
    self->yielded = Py_NewRef(yielded);
    self->outstanding = Py_NewRef(outstanding);
    self->is_training = Py_NewRef(is_training);
    self->look = Py_NewRef(look);
    return 0;
}

static PyObject *quick_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *hook, *state, *original, *otherwise, *write, *settings = Py_None;
    long long tail;
    Quick *self;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OO!OOOL|O", &hook, calls_type, &state, &original, &otherwise, &write,
                          &tail, &settings))
        return NULL;
    self = new_object(type);
    if (!self) return NULL;
    Py_INCREF(state);
    Py_INCREF(hook);
    Py_INCREF(original);
    Py_INCREF(otherwise);
    Py_INCREF(write);
    self->state = (QuickCalls *)state;
    self->hook = hook;
    self->original = original;
    self->otherwise = otherwise;
    self->write = write;
    self->tail = tail;
    if (quick_set_take(self, settings)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static void quick_dealloc(Quick *self)
{
    Py_XDECREF((PyObject *)self->state);
    Py_XDECREF(self->hook);
    Py_XDECREF(self->original);
    Py_XDECREF(self->otherwise);
    Py_XDECREF(self->write);
    Py_XDECREF(self->note);
    Py_XDECREF(self->is_training);
    Py_XDECREF(self->look);
    Py_XDECREF(self->yielded);
    Py_XDECREF(self->outstanding);
    free_object(self);
}

static int may_be_quick(QuickCalls *state)
{
    return state->quick_calls > 0 && !state->is_inside && own_tid() == state->buffer->tid;
}

static void begin(QuickCalls *state, Call *call)
{
    state->quick_calls--;
    state->is_inside = 1;
    call->tid = state->buffer->tid;
    call->start = now_ns();
}

/* Whether the thread is still the trainer. */
static int end(QuickCalls *state, Call *call)
{
    call->end = now_ns();
    if (call->tid != state->buffer->tid) return 0;
    state->is_inside = 0;
    return 1;
}

/* The error that is set becomes an object, which is the caller's. */
static PyObject *catch_error(void)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace) PyException_SetTraceback(error, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return error;
}

static PyObject *raise_again(PyObject *error) /* steals it */
{
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(error)), error, PyException_GetTraceback(error));
    return NULL;
}

/* As if `later` had been raised while `error`, which this steals, was handled. */
static PyObject *raise_after(PyObject *later, PyObject *error)
{
    PyObject *each = Py_NewRef(error), *own = PyException_GetContext(later);
    while (each && each != later && !own) {
        PyObject *before = PyException_GetContext(each);
        Py_DECREF(each);
        each = before;
    }
    if (each || own) Py_DECREF(error); /* it has a context, or would be its own */
    else PyException_SetContext(later, error);
    Py_XDECREF(each);
    Py_XDECREF(own);
    return raise_again(later);
}

/* The job's own call has raised `error`: the hook closes the ticket, and it is raised. Steals both;
   without a ticket there was no memory for one. */
static PyObject *pass_on(Quick *self, PyObject *error, PyObject *ticket)
{
    PyObject *done;
    if (!ticket) {
        PyErr_Clear();
        return raise_again(error);
    }
    done = PyObject_CallMethod(self->hook, "close", "OOO", ticket, Py_None, error);
    Py_DECREF(ticket);
    if (!done) return raise_after(catch_error(), error); /* a handler of the job's interrupted us */
    Py_DECREF(done);
    return raise_again(error);
}

/* Our own code has failed; -1: it was interrupted by the job's, whose error is set. */
static int answer(Quick *self)
{
    PyObject *fault = catch_error();
    PyObject *done = PyObject_CallMethod(self->hook, "answer_for", "O", fault);
    Py_DECREF(fault);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static PyObject *finish(Quick *self, PyObject *result, const Call *call, const int64_t *fields,
                        int64_t tail)
{
    int is_time = add(self->state->buffer, call->start, call->end, fields, tail | call->tid);
    if (is_time > 0) {
        PyObject *done = PyObject_CallNoArgs(self->write);
        Py_XDECREF(done);
        if (!done) is_time = -1;
    }
    if (is_time < 0 && answer(self)) {
        Py_DECREF(result);
        return NULL;
    }
    return result;
}

static PyObject *quick_run(Quick *self, PyObject *args, PyObject *kwargs)
{
    static const int64_t fields[FIELDS] = {[BACKWARD_CPU_NS] = NOT_MEASURED,
                                           [BACKWARD_ENGINE_CPU_NS] = NOT_MEASURED};
    PyObject *result, *error;
    Call call;
    if (!may_be_quick(self->state)) return PyObject_Call(self->otherwise, args, kwargs);
    begin(self->state, &call);
    result = PyObject_Call(self->original, args, kwargs);
    end(self->state, &call);
    if (result) return finish(self, result, &call, fields, self->tail);
    error = catch_error();
    /* BackwardTicket: nodes, cpu_ns (0: not measured), start_ns */
    return pass_on(self, error, Py_BuildValue("(iiL)", 0, 0, (long long)call.start));
}

static PyObject *quick_fetch(Quick *self, PyObject *const *given, Py_ssize_t count)
{
    RecordBuffer *buffer = self->state->buffer;
    PyObject *batch;
    Call call;
    if (!is_as_many(count, 2)) return NULL;
    if (!buffer->write_at || !may_be_quick(self->state))
        return PyObject_CallFunctionObjArgs(self->otherwise, given[0], given[1], NULL);
    buffer->fetched = 0;
    begin(self->state, &call);
    batch = PyObject_CallFunctionObjArgs(self->original, given[0], given[1], NULL);
    if (end(self->state, &call) && batch && PyList_CheckExact(given[1]))
        buffer->fetched = PyList_Size(given[1]);
    return batch;
}

/* An integer of a dictionary, or what it is to be if there is none that a record has room for. */
static long long integer_in(PyObject *own, PyObject *key, long long otherwise)
{
    PyObject *value = PyDict_GetItemWithError(own, key);
    long long found = value && PyLong_CheckExact(value) ? PyLong_AsLongLong(value) : otherwise;
    if (!PyErr_Occurred()) return found;
    PyErr_Clear();
    return otherwise;
}

/* The samples and bytes of a batch, into a record's fields; -1: an error is set. */
static int weigh(Quick *self, PyObject *own, PyObject *note, PyObject *batch, int64_t *fields)
{
    long long enough = PyLong_AsLongLong(PyTuple_GetItem(note, NOTE_ENOUGH)), samples, size_bytes;
    PyObject *usual = PyTuple_GetItem(note, NOTE_BATCH_SIZE), *seen;
    int is_right;
    fields[WAIT_SIZE_BYTES] = NOT_MEASURED;
    if (enough == -1 && PyErr_Occurred()) return -1;
    if (integer_in(own, self->outstanding, self->state->buffer->fetched) >= enough) {
        fields[WAIT_SAMPLES] = PyLong_AsLongLong(usual);
        return PyErr_Occurred() ? -1 : 0;
    }
    seen = PyObject_CallFunctionObjArgs(self->look, batch, usual, NULL);
    if (!seen) return -1;
    is_right = PyArg_ParseTuple(seen, "LL", &samples, &size_bytes);
    Py_DECREF(seen);
    if (!is_right) return -1;
    fields[WAIT_SAMPLES] = samples;
    fields[WAIT_SIZE_BYTES] = size_bytes;
    return 0;
}

static PyObject *take_quickly(Quick *self, PyObject *iterator, PyObject *own, PyObject *note)
{
    PyObject *batch, *error, *answered = PyObject_CallNoArgs(self->is_training);
    int is_training = answered == Py_True;
    const WaitPhases *phases = is_training ? &self->training : &self->evaluating;
    int64_t fields[FIELDS] = {[WAIT_CPU_NS] = NOT_MEASURED};
    Call call;
    Py_XDECREF(answered);
    if (answered) fields[WAIT_SOURCE_ID] = PyLong_AsLongLong(PyTuple_GetItem(note, NOTE_SOURCE_ID));
    if (PyErr_Occurred())
        return answer(self) ? NULL : PyObject_CallFunctionObjArgs(self->otherwise, iterator, NULL);
    fields[WAIT_POSITION] = integer_in(own, self->yielded, 0);
    *self->state->buffer->phase = phases->before;
    begin(self->state, &call);
    batch = PyObject_CallFunctionObjArgs(self->original, iterator, NULL);
    if (end(self->state, &call)) *self->state->buffer->phase = phases->after;
    if (!batch) {
        error = catch_error();
        /* TakeTicket: ident, iterator, note, is_training, position, cpu_ns (0: not measured),
           start_ns */
        return pass_on(self, error,
                       Py_BuildValue("(kOONLiL)", PyThread_get_thread_ident(), iterator, note,
                                     PyBool_FromLong(is_training), (long long)fields[WAIT_POSITION],
                                     0, (long long)call.start));
    }
    if (!weigh(self, own, note, batch, fields))
        return finish(self, batch, &call, fields, phases->tail);
    if (!answer(self)) return batch;
    Py_DECREF(batch);
    return NULL;
}

static PyObject *quick_take(Quick *self, PyObject *iterator)
{
    PyObject *own = NULL, *note = NULL, *batch;
    if (self->note && may_be_quick(self->state)) {
        own = PyObject_GenericGetDict(iterator, NULL);
        note = own ? PyDict_GetItemWithError(own, self->note) : NULL;
        if (!note) PyErr_Clear();
    }
    if (note && PyTuple_Check(note) && PyTuple_Size(note) == NOTE_FIELDS) {
        Py_INCREF(note);
        batch = take_quickly(self, iterator, own, note);
        Py_DECREF(note);
    } else {
        batch = PyObject_CallFunctionObjArgs(self->otherwise, iterator, NULL);
    }
    Py_XDECREF(own);
    return batch;
}

static PyMethodDef quick_methods[] = {
    {"run", (PyCFunction)(void (*)(void))quick_run, METH_VARARGS | METH_KEYWORDS, NULL},
    {"take", (PyCFunction)quick_take, METH_O, NULL},
    {"fetch", (PyCFunction)(void (*)(void))quick_fetch, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot quick_slots[] = {
    {Py_tp_new, quick_new},
    {Py_tp_dealloc, quick_dealloc},
    {Py_tp_methods, quick_methods},
    {0, NULL},
};
static PyType_Spec quick_spec = {
    .name = "fuelline.record._buffer.Quick",
    .basicsize = sizeof(Quick),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = quick_slots,
};

/* MarkQueue: the events that wait for the device, and its clock; see buffer.py. Whatever a call of
   torch's runs meanwhile may use the queue itself: nothing is taken for granted after one. */

static PyObject *marks_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *buffer, *clock;
    long long fresh, most, beginnings, resuming, tail;
    MarkQueue *self;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!O(LLLLL)", buffer_type, &buffer, &clock, &fresh, &most, &beginnings,
                          &resuming, &tail))
        return NULL;
    self = new_object(type);
    if (!self) return NULL;
    self->buffer = (RecordBuffer *)Py_NewRef(buffer);
    self->clock = Py_NewRef(clock);
    self->fresh = fresh, self->most = most, self->tail = tail;
    self->beginnings = beginnings, self->resuming = resuming;
    self->spare = PyList_New(0);
    self->pending = calloc(most, sizeof(Mark));
    if (!self->spare || !self->pending) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static int give_away(PyObject *list, PyObject **held) /* to the list */
{
    int failed = *held ? PyList_Append(list, *held) : 0;
    if (!failed) Py_CLEAR(*held);
    return failed;
}

/* All that is held, which is not held any more: the caller says whether it may be freed. */
static PyObject *marks_clear(MarkQueue *self, PyObject *unused)
{
    PyObject *all = PyList_New(0), *spare = PyList_New(0);
    (void)unused;
    if (!all || !spare || PyList_Append(all, self->spare) || give_away(all, &self->stream)
        || give_away(all, &self->latest) || give_away(all, &self->marked_stream))
        goto failed;
    Py_DECREF(self->spare);
    self->spare = spare, spare = NULL;
    for (; self->count; self->first = (self->first + 1) % self->most, self->count--)
        if (give_away(all, &self->pending[self->first].event)) goto failed;
    self->latest_ns = self->marked_ns = 0;
    self->is_full = self->has_beside = 0;
    return all;
failed:
    Py_XDECREF(all);
    Py_XDECREF(spare);
    return NULL;
}

static void marks_dealloc(MarkQueue *self)
{
    for (; self->pending && self->count; self->count--) {
        Py_XDECREF(self->pending[self->first].event);
        self->first = (self->first + 1) % self->most;
    }
    free(self->pending);
    Py_XDECREF((PyObject *)self->buffer);
    Py_XDECREF(self->clock);
    Py_XDECREF(self->make_event);
    Py_XDECREF(self->is_capturing);
    Py_XDECREF(self->stream);
    Py_XDECREF(self->latest);
    Py_XDECREF(self->marked_stream);
    Py_XDECREF(self->spare);
    free_object(self);
}

static PyObject *name_of(PyObject **name, const char *text)
{
    if (!*name) *name = PyUnicode_InternFromString(text);
    return *name;
}

static int is_true(PyObject *answer) /* steals it; -1: an error is set */
{
    int truth = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return truth;
}

static int is_capturing(MarkQueue *self)
{
    return self->is_capturing ? is_true(PyObject_CallNoArgs(self->is_capturing)) : 0;
}

static PyObject *take_event(MarkQueue *self)
{
    Py_ssize_t spare = PyList_Size(self->spare);
    PyObject *event;
    if (spare < 1) return self->make_event ? PyObject_CallNoArgs(self->make_event) : NULL;
    event = Py_NewRef(PyList_GetItem(self->spare, spare - 1));
    if (PyList_SetSlice(self->spare, spare - 1, spare, NULL)) Py_CLEAR(event);
    return event;
}

static int may_put(MarkQueue *self, int64_t place, PyObject *stream, int64_t now)
{
    if (now - self->marked_ns < self->fresh && self->beginnings >> place & 1
        && stream == self->marked_stream)
        return 0;
    if (self->is_full && self->resuming >> place & 1 && self->count <= self->most / 2)
        self->is_full = 0;
    if (self->count >= self->most) self->is_full = 1;
    return !self->is_full;
}

/* An event of its own on a stream; 0, or -1 with an error set. */
static int put_mark(MarkQueue *self, int64_t place, PyObject *stream, int64_t stream_id)
{
    static PyObject *record;
    int64_t now = now_ns();
    PyObject *event, *done;
    int capturing;
    if (!may_put(self, place, stream, now)) return 0;
    capturing = is_capturing(self);
    if (capturing) return capturing < 0 ? -1 : 0; /* such a stream must not be touched */
    event = take_event(self);
    if (!event) return -1;
    done = name_of(&record, "record") ? PyObject_CallMethodObjArgs(event, record, stream, NULL) : NULL;
    Py_XDECREF(done);
    if (!done || self->count >= self->most) {
        Py_DECREF(event);
        return done ? 0 : -1;
    }
    self->pending[(self->first + self->count++) % self->most] = (Mark){now, place, stream_id, event};
    self->marked_ns = now;
    if (self->marked_stream != stream) {
        PyObject *before = self->marked_stream;
        self->marked_stream = Py_NewRef(stream);
        Py_XDECREF(before);
    }
    return 0;
}

/* The device's time of an event that it has passed, after that of the one before. */
static int move_on(MarkQueue *self, PyObject *event) /* steals it */
{
    static PyObject *elapsed_time;
    PyObject *before = self->latest, *took;
    double took_ms;
    self->latest = event;
    if (!before) return 0;
    took = name_of(&elapsed_time, "elapsed_time")
        ? PyObject_CallMethodObjArgs(before, elapsed_time, event, NULL) : NULL;
    took_ms = took ? PyFloat_AsDouble(took) : -1;
    Py_XDECREF(took);
    if (PyErr_Occurred() || PyList_Append(self->spare, before)) {
        Py_DECREF(before);
        return -1;
    }
    Py_DECREF(before);
    self->latest_ns += (long long)(took_ms * 1e6);
    return 0;
}

/* Whether the device has passed the first that is pending. */
static int has_passed(MarkQueue *self)
{
    static PyObject *query;
    PyObject *event;
    int passed;
    if (!self->count) return 0;
    event = Py_NewRef(self->pending[self->first].event);
    passed = name_of(&query, "query") ? is_true(PyObject_CallMethodObjArgs(event, query, NULL)) : -1;
    if (passed > 0 && (!self->count || self->pending[self->first].event != event)) passed = 0;
    Py_DECREF(event);
    return passed;
}

static int read_marks(MarkQueue *self)
{
    int64_t now = 0;
    int passed, is_time = 0;
    if (!self->count) return 0;
    passed = is_capturing(self);
    if (passed) return passed < 0 ? -1 : 0;
    while ((passed = has_passed(self)) > 0) {
        int64_t fields[FIELDS];
        Mark mark = self->pending[self->first];
        int added;
        if (!now) now = now_ns();
        self->first = (self->first + 1) % self->most;
        self->count--;
        if (move_on(self, mark.event)) return -1;
        fields[MARK_DEVICE] = self->device;
        fields[MARK_DEVICE_NS] = self->latest_ns;
        fields[MARK_CLOCK] = self->number;
        fields[MARK_STREAM] = mark.stream;
        fields[MARK_PLACE] = mark.place;
        added = add(self->buffer, mark.at, now, fields, self->tail | self->buffer->tid);
        if (added < 0) return -1;
        is_time |= added;
    }
    if (passed < 0) return -1;
    if (now && self->has_beside) {
        int added = is_true(PyObject_CallMethod(self->clock, "read_beside", "L", (long long)now));
        if (added < 0) return -1;
        is_time |= added;
    }
    return is_time ? is_true(PyObject_CallMethod(self->clock, "write", NULL)) < 0 ? -1 : 0 : 0;
}

/* None; what of ours has failed goes to the clock, which raises again what is the job's. */
static PyObject *settle(MarkQueue *self, int failed)
{
    PyObject *fault, *done;
    if (!failed) Py_RETURN_NONE;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "no events for this device");
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
    fault = catch_error();
    done = PyObject_CallMethod(self->clock, "answer_for", "O", fault);
    Py_DECREF(fault);
    return done;
}

static int is_training_here(MarkQueue *self)
{
    return self->stream && self->stream != Py_None && own_tid() == self->buffer->tid;
}

static int put_on_own(MarkQueue *self, PyObject *place)
{
    PyObject *stream = Py_NewRef(self->stream);
    int failed = put_mark(self, PyLong_AsLongLong(place), stream, self->stream_id);
    Py_DECREF(stream);
    return failed;
}

static PyObject *marks_mark(MarkQueue *self, PyObject *place)
{
    return settle(self, is_training_here(self) ? put_on_own(self, place) : 0);
}

static PyObject *marks_read_and_mark(MarkQueue *self, PyObject *place)
{
    if (!is_training_here(self)) Py_RETURN_NONE;
    if (read_marks(self)) {
        PyObject *done = settle(self, 1);
        if (!done) return NULL;
        Py_DECREF(done);
    }
    return marks_mark(self, place);
}

static PyObject *marks_read(MarkQueue *self, PyObject *unused)
{
    (void)unused;
    return settle(self, is_training_here(self) ? read_marks(self) : 0);
}

static PyObject *marks_put(MarkQueue *self, PyObject *const *given, Py_ssize_t count)
{
    enum { PLACE, STREAM, STREAM_ID, ARGUMENTS };
    long long stream_id;
    if (!is_as_many(count, ARGUMENTS)) return NULL;
    stream_id = PyLong_AsLongLong(given[STREAM_ID]);
    if (PyErr_Occurred()) return NULL;
    return settle(self, put_mark(self, PyLong_AsLongLong(given[PLACE]), given[STREAM], stream_id));
}

static PyObject *marks_take_event(MarkQueue *self, PyObject *unused)
{
    (void)unused;
    return take_event(self);
}

static PyObject *marks_give_event(MarkQueue *self, PyObject *event)
{
    if (PyList_Append(self->spare, event)) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef marks_methods[] = {
    {"mark", (PyCFunction)marks_mark, METH_O, NULL},
    {"read_and_mark", (PyCFunction)marks_read_and_mark, METH_O, NULL},
    {"read", (PyCFunction)marks_read, METH_NOARGS, NULL},
    {"put", (PyCFunction)(void (*)(void))marks_put, METH_FASTCALL, NULL},
    {"take_event", (PyCFunction)marks_take_event, METH_NOARGS, NULL},
    {"give_event", (PyCFunction)marks_give_event, METH_O, NULL},
    {"clear", (PyCFunction)marks_clear, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef marks_members[] = {
    {"make_event", T_OBJECT, offsetof(MarkQueue, make_event), 0, NULL},
    {"is_capturing", T_OBJECT, offsetof(MarkQueue, is_capturing), 0, NULL},
    {"stream", T_OBJECT, offsetof(MarkQueue, stream), 0, NULL},
    {"latest", T_OBJECT, offsetof(MarkQueue, latest), 0, NULL},
    {"stream_id", T_LONGLONG, offsetof(MarkQueue, stream_id), 0, NULL},
    {"device", T_LONGLONG, offsetof(MarkQueue, device), 0, NULL},
    {"number", T_LONGLONG, offsetof(MarkQueue, number), 0, NULL},
    {"latest_ns", T_LONGLONG, offsetof(MarkQueue, latest_ns), 0, NULL},
    {"has_beside", T_BOOL, offsetof(MarkQueue, has_beside), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot marks_slots[] = {
    {Py_tp_new, marks_new},
    {Py_tp_dealloc, marks_dealloc},
    {Py_tp_methods, marks_methods},
    {Py_tp_members, marks_members},
    {0, NULL},
};
static PyType_Spec marks_spec = {
    .name = "fuelline.record._buffer.MarkQueue",
    .basicsize = sizeof(MarkQueue),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = marks_slots,
};

/* All of it at an offset; 0 or errno. */
static int write_all(int fd, const char *from, size_t size, off_t at)
{
    while (size) {
        ssize_t done = pwrite(fd, from, size, at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done ? errno : ENOSPC;
        from += done, at += done, size -= done;
    }
    return 0;
}

static PyObject *spill(PyObject *module, PyObject *args)
{
    PyObject *path, *records, *notes;
    Py_ssize_t size;
    long long at, notes_at;
    struct rlimit limit;
    int fd, error;
    (void)module;
    if (!PyArg_ParseTuple(args, "O&LSLS", PyUnicode_FSConverter, &path, &at, &records, &notes_at,
                          &notes))
        return NULL;
    size = PyBytes_Size(records);
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY
        && (rlim_t)(at + size) > limit.rlim_cur) {
        error = EFBIG;
    } else if ((fd = open(PyBytes_AsString(path),
                          O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) < 0) {
        error = errno;
    } else {
        error = write_all(fd, PyBytes_AsString(records), size, at);
        if (error && ftruncate(fd, at)) error = errno;
        if (!error) error = write_all(fd, PyBytes_AsString(notes), PyBytes_Size(notes), notes_at);
        close(fd);
    }
    Py_DECREF(path);
    return PyLong_FromLong(error);
}

static PyMethodDef module_methods[] = {
    {"spill", spill, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, const char *name, PyTypeObject **type, PyType_Spec *spec)
{
    if (!*type) *type = (PyTypeObject *)PyType_FromSpec(spec);
    return *type ? PyModule_AddObjectRef(module, name, (PyObject *)*type) : -1;
}

static int fill_module(PyObject *module)
{
    if (add_type(module, "RecordBuffer", &buffer_type, &buffer_spec)
        || add_type(module, "QuickCalls", &calls_type, &calls_spec)
        || add_type(module, "Quick", &quick_type, &quick_spec)
        || add_type(module, "MarkQueue", &marks_type, &marks_spec))
        return -1;
    return PyModule_AddIntConstant(module, "LAYOUT", LAYOUT);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};
static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, .m_name = "_buffer", .m_methods = module_methods,
    .m_slots = module_slots,
    .m_doc = "The hooks' quick path; see buffer.py.",
};

PyMODINIT_FUNC PyInit__buffer(void) { return PyModuleDef_Init(&module_def); }
