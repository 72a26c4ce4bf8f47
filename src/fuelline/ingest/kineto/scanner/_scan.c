/* Text of a piece of a Chrome trace in, rows of tables out: the fast half of scan.py.

   It takes what profilers usually write and refuses everything else: an event with a value of
   another type, an escape in a key, a key twice or a number that a double does not hold is left to
   Python ("odd"), and a piece that is not plainly well-formed is left to Python as a whole. So it
   need not know what is right in such cases, and both always give the same tables
   (tests/unit/ingest/kineto/test_same.py).

   text.h -> events.h -> rows.h -> columns.h, and here what Python calls. */

#include "columns.h"

enum { LAYOUT = 1 };   /* of what Python and this file say to each other; see scan.py */
enum { MOST_ODD = 32 }; /* events of a piece; with more, Python is the faster one for all of it */

static void drop_pending(Scanner *self)
{
    Py_ssize_t marks = self->sheets[self->sheet_count - 1].kept;
    for (int i = 0; i < self->sheet_count; i++) self->sheets[i].count = self->sheets[i].kept;
    PyList_SetSlice(self->marks, marks, PyList_Size(self->marks), NULL);
    self->negative = self->kept_negative;
}

static int note_odd(PyObject *odd, Py_ssize_t start, Py_ssize_t end)
{
    PyObject *range = Py_BuildValue("(nn)", start, end);
    int failed = !range || PyList_Append(odd, range);
    Py_XDECREF(range);
    return failed ? FAILED : PyList_Size(odd) > MOST_ODD ? REFUSED : TAKEN;
}

static int scan_piece(Scanner *self, const char *text, Py_ssize_t size, int64_t place, int exact,
                      PyObject *odd, Py_ssize_t *events)
{
    const char *p = text, *end = text + size;
    Event event;
    for (;;) {
        const char *start = p = skip_space(p, end);
        int outcome;
        if (p >= end || *p != '{') return REFUSED;
        event.seen = 0;
        event.odd = 0;
        p = read_object(p + 1, end, &event, PH, ARGS + 1);
        if (!p) return REFUSED;
        outcome = sort_out(self, &event, place + (start - text), exact);
        if (outcome == REFUSED) outcome = note_odd(odd, start - text, p - text);
        else (*events)++;
        if (outcome != TAKEN) return outcome;
        p = skip_space(p, end);
        if (p >= end) return TAKEN;
        if (*p++ != ',') return REFUSED;
    }
}

PyDoc_STRVAR(scan_doc,
"scan(text, place, exact) -> (outcome, events, odd)\n\n"
"Read a piece that stands at this place of the file. What an earlier call left and was not kept is\n"
"dropped. `odd`: where events begin and end that Python must read; they are not among `events`.");
static PyObject *scanner_scan(Scanner *self, PyObject *args)
{
    PyObject *bytes, *odd, *result;
    char *text;
    Py_ssize_t size, events = 0;
    long long place;
    int exact, outcome;
    if (!PyArg_ParseTuple(args, "OLp", &bytes, &place, &exact)) return NULL;
    if (PyBytes_AsStringAndSize(bytes, &text, &size)) return NULL;
    drop_pending(self);
    odd = PyList_New(0);
    if (!odd) return NULL;
    outcome = scan_piece(self, text, size, place, exact, odd, &events);
    if (outcome == FAILED) {
        Py_DECREF(odd);
        drop_pending(self);
        return NULL;
    }
    result = Py_BuildValue("(inN)", outcome, events, odd);
    return result;
}

PyDoc_STRVAR(keep_doc, "keep()\n\nThe rows of the last piece are to stay.");
static PyObject *scanner_keep(Scanner *self, PyObject *Py_UNUSED(nothing))
{
    for (int i = 0; i < self->sheet_count; i++) self->sheets[i].kept = self->sheets[i].count;
    self->kept_negative = self->negative;
    Py_RETURN_NONE;
}

static Sheet *ask_sheet(Scanner *self, PyObject *number)
{
    long index = PyLong_AsLong(number);
    if (index == -1 && PyErr_Occurred()) return NULL;
    if (index < 0 || index >= self->sheet_count) {
        PyErr_SetString(PyExc_IndexError, "no such sheet");
        return NULL;
    }
    return &self->sheets[index];
}

PyDoc_STRVAR(counts_doc, "counts() -> list of int\n\nRows of each sheet that are kept.");
static PyObject *scanner_counts(Scanner *self, PyObject *Py_UNUSED(nothing))
{
    PyObject *counts = PyList_New(self->sheet_count);
    for (int i = 0; counts && i < self->sheet_count; i++) {
        PyObject *count = PyLong_FromSsize_t(self->sheets[i].kept);
        if (!count || PyList_SetItem(counts, i, count)) Py_CLEAR(counts);
    }
    return counts;
}

PyDoc_STRVAR(negative_doc, "negative() -> int\n\nRows kept so far whose duration was below zero.");
static PyObject *scanner_negative(Scanner *self, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLong(self->kept_negative);
}

PyDoc_STRVAR(take_doc,
"take(sheet) -> (arrow_schema, arrow_array)\n\n"
"The rows that are kept, as columns; only those of a piece that is not kept yet are left.");
static PyObject *scanner_take(Scanner *self, PyObject *number)
{
    Sheet *sheet = ask_sheet(self, number);
    PyObject *schema, *array;
    if (!sheet) return NULL;
    schema = export_schema(sheet);
    if (!schema) return NULL;
    array = export_rows(sheet);
    if (!array) {
        Py_DECREF(schema);
        return NULL;
    }
    sheet->count -= sheet->kept;
    if (sheet->count) memmove(sheet->rows, sheet->rows + sheet->kept * (sheet->width + 1),
            (size_t)sheet->count * (size_t)(sheet->width + 1) * 8);
    sheet->kept = 0;
    return Py_BuildValue("(NN)", schema, array);
}

PyDoc_STRVAR(take_marks_doc,
"take_marks() -> (list of bytes, (arrow_schema, arrow_array))\n\n"
"The arguments of the rows of the last sheet as they are written, and these rows.");
static PyObject *scanner_take_marks(Scanner *self, PyObject *Py_UNUSED(nothing))
{
    Py_ssize_t kept = self->sheets[self->sheet_count - 1].kept;
    PyObject *number = PyLong_FromLong(self->sheet_count - 1);
    PyObject *marks = PyList_GetSlice(self->marks, 0, kept);
    PyObject *rows = number && marks ? scanner_take(self, number) : NULL;
    Py_XDECREF(number);
    if (!rows || PyList_SetSlice(self->marks, 0, kept, NULL)) {
        Py_XDECREF(marks);
        Py_XDECREF(rows);
        return NULL;
    }
    return Py_BuildValue("(NN)", marks, rows);
}

/* A sequence of (bytes, int) into words; -1 with an exception if it is none. */
static int read_words(PyObject *pairs, Word *words, int *count)
{
    Py_ssize_t size = PySequence_Size(pairs);
    if (size < 0) return -1;
    if (size > MOST_WORDS) {
        PyErr_SetString(PyExc_ValueError, "too many words");
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *text;
        Py_ssize_t length = 0;
        long value;
        PyObject *pair = PySequence_GetItem(pairs, i);
        int fine = pair && PyArg_ParseTuple(pair, "Sl", &text, &value);
        char *copy = fine ? malloc((size_t)(length = PyBytes_Size(text)) + 1) : NULL;
        if (copy) {
            memcpy(copy, PyBytes_AsString(text), (size_t)length);
            words[(*count)++] = (Word){copy, length, value};
        } else if (fine) {
            PyErr_NoMemory();
        }
        Py_XDECREF(pair);
        if (!copy) return -1;
    }
    return 0;
}

static int make_sheets(Scanner *self, const char *kinds, Py_ssize_t size)
{
    if (size >= MOST_SHEETS) {
        PyErr_SetString(PyExc_ValueError, "too many sheets");
        return -1;
    }
    for (Py_ssize_t i = 0; i <= size; i++) {
        int kind = i < size ? kinds[i] : 'm'; /* the last one is for marks */
        const char *const *columns = kind == 'd' ? DEVICE_COLUMNS : kind == 'm' ? MARK_COLUMNS : HOST_COLUMNS;
        int width = kind == 'd' ? (int)D_WIDTH : kind == 'm' ? (int)M_WIDTH : (int)H_WIDTH;
        self->sheets[i] = (Sheet){.columns = columns, .width = width, .kind = kind};
    }
    self->sheet_count = (int)size + 1;
    return 0;
}

static int check_words(const Scanner *self)
{
    int fine = self->other >= 0 && self->other < self->sheet_count - 1;
    for (int i = 0; i < self->category_count; i++)
        fine = fine && self->categories[i].value < self->sheet_count - 1;
    for (int i = 0; i < self->dtype_count; i++)
        fine = fine && self->dtypes[i].value > 0 && self->dtypes[i].value <= 64;
    if (!fine) PyErr_SetString(PyExc_ValueError, "a word stands for a sheet or a size that is none");
    return fine ? 0 : -1;
}

static void scanner_dealloc(Scanner *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    for (int i = 0; i < self->category_count; i++) free(self->categories[i].text);
    for (int i = 0; i < self->dtype_count; i++) free(self->dtypes[i].text);
    for (int i = 0; i < self->sheet_count; i++) free(self->sheets[i].rows);
    for (int i = 0; self->cache && i < CACHE; i++) free(self->cache[i].text);
    free(self->cache);
    Py_XDECREF(self->look);
    Py_XDECREF(self->marks);
    release(self);
    Py_DECREF(type);
}

static PyObject *scanner_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(named))
{
    PyObject *look, *categories, *dtypes, *kinds;
    long other;
    Scanner *self;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    if (!PyArg_ParseTuple(args, "OOOSl", &look, &categories, &dtypes, &kinds, &other)) return NULL;
    self = (Scanner *)allocate(type, 0); /* zeroed */
    if (!self) return NULL;
    Py_INCREF(look);
    self->look = look;
    self->other = other;
    self->cache = calloc(CACHE, sizeof *self->cache);
    self->marks = PyList_New(0);
    if (!self->cache && self->marks) PyErr_NoMemory();
    if (!self->cache || !self->marks || make_sheets(self, PyBytes_AsString(kinds), PyBytes_Size(kinds)) ||
        read_words(categories, self->categories, &self->category_count) ||
        read_words(dtypes, self->dtypes, &self->dtype_count) || check_words(self)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMethodDef scanner_methods[] = {
    {"scan", (PyCFunction)scanner_scan, METH_VARARGS, scan_doc},
    {"keep", (PyCFunction)scanner_keep, METH_NOARGS, keep_doc},
    {"counts", (PyCFunction)scanner_counts, METH_NOARGS, counts_doc},
    {"negative", (PyCFunction)scanner_negative, METH_NOARGS, negative_doc},
    {"take", (PyCFunction)scanner_take, METH_O, take_doc},
    {"take_marks", (PyCFunction)scanner_take_marks, METH_NOARGS, take_marks_doc},
    {NULL, NULL, 0, NULL},
};
PyDoc_STRVAR(scanner_doc,
"Scanner(look, categories, dtypes, kinds, other)\n\n"
"`look`: bytes of a name -> its number and flags, -1 if it cannot be read. `categories`: (bytes,\n"
"sheet), below zero to ignore them. `dtypes`: (bytes, size). `kinds`: a letter a sheet: d, l or h.\n"
"`other`: sheet of categories that are not named.");
static PyType_Slot scanner_slots[] = {
    {Py_tp_doc, (void *)scanner_doc},
    {Py_tp_new, scanner_new},
    {Py_tp_dealloc, scanner_dealloc},
    {Py_tp_methods, scanner_methods},
    {0, NULL},
};
static PyType_Spec scanner_spec = {
    .name = "fuelline.ingest.kineto._scan.Scanner",
    .basicsize = sizeof(Scanner),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = scanner_slots,
};

static int fill_module(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&scanner_spec);
    if (!type || fill_slots() || PyModule_AddObject(module, "Scanner", type)) {
        Py_XDECREF(type);
        return -1;
    }
    return PyModule_AddIntConstant(module, "LAYOUT", LAYOUT);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};
static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, .m_name = "_scan", .m_slots = module_slots,
    .m_doc = "Pieces of Chrome traces to columns; see scan.py.",
};

PyMODINIT_FUNC PyInit__scan(void) { return PyModuleDef_Init(&module_def); }
