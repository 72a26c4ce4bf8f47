/* What the hooks of quick steps do at every call: the compiled twin of held.py.

   A training step leaves nothing of ours in the caches, and then it is not the work that costs but
   each object and each line of bytecode that has to be fetched from memory. Here a call needs one
   small struct and a few lines of code. Everything runs under the GIL, and no code of the job's runs
   between two changes of a struct. held.py says what the fields and functions mean; both always do
   the same (tests/unit/record/test_held.py), but only this one can notice collections. */

#define Py_LIMITED_API 0x030B0000 /* the first with buffers */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LAYOUT = 2 }; /* of what Python and this file say to each other; see held.py */
enum { OWN = 5, WORDS = 2 + OWN + 1 }; /* of a record: start, length, its own, tail */

typedef struct {
    PyObject_HEAD
    unsigned long trainer;
    long long tid, write_at, fetched, born_ns;
    unsigned char *phase;
    size_t count, room; /* words */
    int64_t *words;
    long long collection_start, collection_least, collection_tail;
    Py_buffer shown;
    unsigned char unseen; /* the phase while none is shown */
} Held;

typedef struct {
    PyObject_HEAD
    Held *held;
    long long quick_calls, tid; /* tid: of the thread that is inside */
    char is_inside;
} Lap;

static PyTypeObject *held_type;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void hide_phase(Held *self)
{
    self->phase = &self->unseen;
    if (self->shown.obj) PyBuffer_Release(&self->shown);
}

static PyObject *held_reset(Held *self, PyObject *unused)
{
    (void)unused;
    self->trainer = 0;
    self->tid = self->write_at = self->fetched = 0;
    self->count = 0;
    self->unseen = 0;
    self->born_ns = now_ns();
    hide_phase(self);
    Py_RETURN_NONE;
}

static PyObject *held_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Held *self = (Held *)allocate(type, 0);
    (void)args, (void)kwargs;
    if (self) self->phase = &self->unseen; /* the rest is zeros */
    return (PyObject *)self;
}

static void held_dealloc(Held *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    hide_phase(self);
    free(self->words);
    release(self);
    Py_DECREF(type);
}

static PyObject *held_show(Held *self, PyObject *buffer)
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

static PyObject *held_take(Held *self, PyObject *unused)
{
    PyObject *all = PyBytes_FromStringAndSize((char *)self->words,
                                              (Py_ssize_t)(self->count * sizeof(int64_t)));
    (void)unused;
    if (all) self->count = 0;
    return all;
}

static int64_t *reserve(Held *self)
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

static int add(Held *self, int64_t start, int64_t end, const int64_t *own, int64_t tail)
{ /* the tail has its thread */
    int64_t *record;
    if (start < self->born_ns) return 0;
    record = reserve(self);
    if (!record) return -1;
    record[0] = start;
    record[1] = end - start;
    memcpy(record + 2, own, OWN * sizeof(int64_t));
    record[WORDS - 1] = tail;
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

static PyObject *held_keep(Held *self, PyObject *const *given, Py_ssize_t count)
{
    int64_t in[2 + OWN + 1];
    if (!is_as_many(count, 2 + OWN + 1) || read_integers(given, 2 + OWN + 1, in)) return NULL;
    return as_bool(add(self, in[0], in[1], in + 2, in[2 + OWN] | self->tid));
}

static PyObject *held_mark(Held *self, PyObject *const *given, Py_ssize_t count)
{
    int64_t now = now_ns(), in[2], own[OWN] = {0};
    if (!is_as_many(count, 2)) return NULL;
    if (PyThread_get_thread_ident() != self->trainer) Py_RETURN_NONE;
    if (read_integers(given, 2, in)) return NULL;
    own[0] = in[0];
    return as_bool(add(self, now, now, own, in[1] | self->tid));
}

static PyObject *held_watch_collections(Held *self, PyObject *const *given, Py_ssize_t count)
{
    int64_t in[2];
    if (!is_as_many(count, 2) || read_integers(given, 2, in)) return NULL;
    self->collection_least = in[0];
    self->collection_tail = in[1];
    Py_RETURN_NONE;
}

/* A callback of the collector; whatever it would raise is nobody's to catch. */
static PyObject *held_notice(Held *self, PyObject *const *given, Py_ssize_t count)
{
    int64_t now = now_ns(), own[OWN] = {0};
    static const char *const names[] = {"generation", "collected"};
    if (count != 2 || !PyUnicode_Check(given[0]) || !PyDict_Check(given[1])) Py_RETURN_NONE;
    if (!PyUnicode_CompareWithASCIIString(given[0], "start")) {
        self->collection_start = now;
        Py_RETURN_NONE;
    }
    if (!self->collection_start || now - self->collection_start < self->collection_least)
        Py_RETURN_NONE;
    for (int i = 0; i < 2; i++) {
        PyObject *value = PyDict_GetItemString(given[1], names[i]);
        if (value && PyLong_CheckExact(value)) own[i] = PyLong_AsLongLong(value);
    }
    add(self, self->collection_start, now, own, self->collection_tail | syscall(SYS_gettid));
    PyErr_Clear();
    Py_RETURN_NONE;
}

static int set_phase(Held *self, PyObject *value)
{
    long phase = PyLong_AsLong(value);
    if (phase >= 0 && phase <= 255) {
        *self->phase = (unsigned char)phase;
        return 0;
    }
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%ld is no phase", phase);
    return -1;
}

static PyObject *held_get_phase(Held *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(*self->phase);
}

static int held_set_phase(Held *self, PyObject *value, void *unused)
{
    (void)unused;
    if (value) return set_phase(self, value);
    PyErr_SetString(PyExc_AttributeError, "a phase cannot be deleted");
    return -1;
}

static PyMethodDef held_methods[] = {
    {"reset", (PyCFunction)held_reset, METH_NOARGS, NULL},
    {"show", (PyCFunction)held_show, METH_O, NULL},
    {"take", (PyCFunction)held_take, METH_NOARGS, NULL},
    {"keep", (PyCFunction)(void (*)(void))held_keep, METH_FASTCALL, NULL},
    {"watch_collections", (PyCFunction)(void (*)(void))held_watch_collections, METH_FASTCALL, NULL},
    {"notice", (PyCFunction)(void (*)(void))held_notice, METH_FASTCALL, NULL},
    {"mark", (PyCFunction)(void (*)(void))held_mark, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef held_members[] = {
    {"trainer", T_ULONG, offsetof(Held, trainer), 0, NULL},
    {"tid", T_LONGLONG, offsetof(Held, tid), 0, NULL},
    {"write_at", T_LONGLONG, offsetof(Held, write_at), 0, NULL},
    {"fetched", T_LONGLONG, offsetof(Held, fetched), 0, NULL},
    {"born_ns", T_LONGLONG, offsetof(Held, born_ns), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef held_getset[] = {
    {"phase", (getter)held_get_phase, (setter)held_set_phase, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot held_slots[] = {
    {Py_tp_new, held_new},
    {Py_tp_dealloc, held_dealloc},
    {Py_tp_methods, held_methods},
    {Py_tp_members, held_members},
    {Py_tp_getset, held_getset},
    {0, NULL},
};
static PyType_Spec held_spec = {
    .name = "fuelline.record._held.Held",
    .basicsize = sizeof(Held),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = held_slots,
};

static PyObject *lap_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *held;
    Lap *self;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O!", held_type, &held)) return NULL;
    self = (Lap *)allocate(type, 0);
    if (self) {
        Py_INCREF(held);
        self->held = (Held *)held;
    }
    return (PyObject *)self;
}

static void lap_dealloc(Lap *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    Py_XDECREF((PyObject *)self->held);
    release(self);
    Py_DECREF(type);
}

static int may_be_quick(Lap *self)
{
    return self->quick_calls > 0 && !self->is_inside
           && PyThread_get_thread_ident() == self->held->trainer;
}

static PyObject *lap_start(Lap *self, PyObject *phase)
{
    if (!may_be_quick(self)) return PyLong_FromLong(0);
    if (phase != Py_None && set_phase(self->held, phase)) return NULL;
    self->quick_calls--;
    self->is_inside = 1;
    self->tid = self->held->tid;
    return PyLong_FromLongLong(now_ns());
}

static PyObject *lap_stop(Lap *self, PyObject *const *given, Py_ssize_t count)
{
    int64_t end = now_ns(), tid = self->tid, in[1 + OWN + 1];
    if (!is_as_many(count, 1 + 1 + OWN + 1)) return NULL;
    if (tid == self->held->tid) { /* else another thread has become the trainer meanwhile */
        self->is_inside = 0;
        if (given[0] != Py_None && set_phase(self->held, given[0])) return NULL;
    }
    if (read_integers(given + 1, 1 + OWN + 1, in)) return NULL;
    return as_bool(add(self->held, in[0], end, in + 1, in[1 + OWN] | tid));
}

static PyObject *lap_skip(Lap *self, PyObject *unused)
{
    (void)unused;
    if (!self->held->write_at || !may_be_quick(self)) Py_RETURN_FALSE;
    self->quick_calls--;
    self->is_inside = 1;
    Py_RETURN_TRUE;
}

static PyMethodDef lap_methods[] = {
    {"start", (PyCFunction)lap_start, METH_O, NULL},
    {"stop", (PyCFunction)(void (*)(void))lap_stop, METH_FASTCALL, NULL},
    {"skip", (PyCFunction)lap_skip, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef lap_members[] = {
    {"quick_calls", T_LONGLONG, offsetof(Lap, quick_calls), 0, NULL},
    {"is_inside", T_BOOL, offsetof(Lap, is_inside), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot lap_slots[] = {
    {Py_tp_new, lap_new},
    {Py_tp_dealloc, lap_dealloc},
    {Py_tp_methods, lap_methods},
    {Py_tp_members, lap_members},
    {0, NULL},
};
static PyType_Spec lap_spec = {
    .name = "fuelline.record._held.Lap",
    .basicsize = sizeof(Lap),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = lap_slots,
};

static int fill_module(PyObject *module)
{
    PyObject *held = PyType_FromSpec(&held_spec), *lap = PyType_FromSpec(&lap_spec);
    if (!held || !lap || PyModule_AddObjectRef(module, "Held", held)
        || PyModule_AddObjectRef(module, "Lap", lap)
        || PyModule_AddIntConstant(module, "LAYOUT", LAYOUT)) {
        Py_XDECREF(held);
        Py_XDECREF(lap);
        return -1;
    }
    held_type = (PyTypeObject *)held; /* kept for as long as the process lives */
    Py_DECREF(lap);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};
static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, .m_name = "_held", .m_slots = module_slots,
    .m_doc = "The hooks' quick path; see held.py.",
};

PyMODINIT_FUNC PyInit__held(void) { return PyModuleDef_Init(&module_def); }
