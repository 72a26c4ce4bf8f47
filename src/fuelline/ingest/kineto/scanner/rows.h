/* Events become rows: arrays of 64-bit cells with a mask of those that are known.

   Everything is computed exactly as numbers.py, device.py and host.py do it; what they would have
   to think about is REFUSED. */

#pragma once
#include "events.h"

enum { TAKEN = 0, REFUSED = 1, COARSE = 2, FAILED = 3 }; /* what became of a piece or an event */
enum { MOST_SHEETS = 16, MOST_WORDS = 64 };
#define WHOLE_DOUBLE 9007199254740992ULL /* 2**53: whole numbers below fit a double */
#define COARSE_US 8796093022208ULL       /* 2**43: fractions from here on are coarser than 1 ns */

enum { C_AT, C_START, C_END, C_FIRST }; /* of every row */
enum { H_THREAD = C_FIRST, H_NAME, H_CORRELATION, H_EXTERNAL, H_WIDTH };
enum {
    D_DEVICE = C_FIRST, D_STREAM, D_NAME, D_CORRELATION, D_EXTERNAL, D_SIZE, D_BLOCKS, D_THREADS,
    D_REGISTERS, D_SHARED, D_OCCUPANCY, D_GRAPH, D_GROUP, D_SEQUENCE, D_WIDTH
};
enum { M_NAME = C_FIRST, M_WIDTH };

static const char *const HOST_COLUMNS[] = {
    "at", "start_ns", "end_ns", "thread", "name", "correlation", "external"
};
static const char *const DEVICE_COLUMNS[] = {
    "at", "start_ns", "end_ns", "device", "stream", "name", "correlation", "external",
    "size_bytes", "blocks", "threads", "registers", "shared_bytes", "occupancy", "graph", "group",
    "sequence"
};
static const char *const MARK_COLUMNS[] = {"at", "start_ns", "end_ns", "name"};

typedef struct {
    uint64_t known; /* a bit a cell */
    int64_t cells[D_WIDTH];
} Row;

typedef struct {
    const char *const *columns;
    int width;
    int kind; /* 'd' device, 'l' host with links, 'h' host without */
    int64_t *rows; /* each of 1 + width: the mask, then the cells */
    Py_ssize_t count, kept, room;
} Sheet;

typedef struct {
    char *text;
    Py_ssize_t size;
    long value;
} Word;

typedef struct {
    uint64_t hash;
    uint32_t size;
    long found;
    char *text;
} Known;

enum { CACHE = 4096, MOST_CACHED = 1024 }; /* names; at most 4 MB of them */
enum { SPECIAL = 1, MARKED = 2, FLAG_BITS = 2 }; /* what Python says of a name beside its number */

typedef struct {
    PyObject_HEAD
    PyObject *look;  /* called with a name as it is written */
    PyObject *marks; /* list of bytes: arguments of the rows of the last sheet */
    Word categories[MOST_WORDS], dtypes[MOST_WORDS];
    int category_count, dtype_count, sheet_count;
    long other; /* sheet of categories that nobody knows */
    Sheet sheets[MOST_SHEETS];
    Known *cache;
    long negative, kept_negative;
} Scanner;

static long find_word(const Word *words, int count, const Text *text, long otherwise)
{
    for (int i = 0; i < count; i++)
        if (words[i].size == text->size && (!text->size || words[i].text[0] == text->at[0]) &&
            !memcmp(words[i].text, text->at, (size_t)text->size))
            return words[i].value;
    return otherwise;
}

static int put_row(Sheet *sheet, const Row *row)
{
    int64_t *at;
    if (sheet->count == sheet->room) {
        Py_ssize_t room = sheet->room ? 2 * sheet->room : 1024;
        int64_t *rows = realloc(sheet->rows, (size_t)room * (size_t)(sheet->width + 1) * 8);
        if (!rows) {
            PyErr_NoMemory();
            return FAILED;
        }
        sheet->rows = rows;
        sheet->room = room;
    }
    at = sheet->rows + sheet->count++ * (sheet->width + 1);
    at[0] = (int64_t)row->known;
    memcpy(at + 1, row->cells, (size_t)sheet->width * 8);
    return TAKEN;
}

static void put(Row *row, int cell, int64_t value)
{
    row->cells[cell] = value;
    row->known |= 1ULL << cell;
}

/* A whole number, or digits as text; 0 if it is neither. `zeros`: the text may begin with some. */
static int to_whole(const Value *value, int zeros, int64_t *whole)
{
    const Number *n = &value->number;
    const char *at = value->text.at;
    Py_ssize_t size = value->text.size;
    *whole = 0;
    if (value->type == NUMBER) {
        *whole = n->negative ? -(int64_t)n->digits : (int64_t)n->digits;
        return n->fits && !n->places; /* up to 16 digits */
    }
    if (value->type != STRING || size < 1 || size > 18) return 0;
    if (*at == '0' && size > 1 && !zeros) return 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        if (at[i] < '0' || at[i] > '9') return 0;
        *whole = *whole * 10 + (at[i] - '0');
    }
    return 1;
}

static int to_double(const Value *value, double *found)
{
    static const double TENS[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
    const Number *n = &value->number;
    if (value->type != NUMBER || !n->fits || n->digits >= WHOLE_DOUBLE) return 0;
    *found = (double)n->digits / TENS[n->places]; /* both exact, so this is rounded once */
    if (n->negative) *found = -*found;
    return 1;
}

static int put_whole(Row *row, int cell, const Value *value)
{
    int64_t whole;
    if (value->type == ABSENT) return 1;
    if (!to_whole(value, 0, &whole)) return 0;
    put(row, cell, whole);
    return 1;
}

static int put_sizes(Row *row, int cell, const Value *value)
{
    if (value->type == SIZES) put(row, cell, (int64_t)value->number.digits);
    return value->type == SIZES || value->type == ABSENT;
}

static int put_double(Row *row, int cell, const Value *value)
{
    double found;
    int64_t bits;
    if (value->type == ABSENT) return 1;
    if (!to_double(value, &found)) return 0;
    memcpy(&bits, &found, 8);
    put(row, cell, bits);
    return 1;
}

/* Start and end, exactly as numbers.py computes them; `exact`: digits, else as a double would. */
static int put_times(Row *row, const Event *event, int exact, long *negative)
{
    const Value *ts = get(event, TS), *dur = get(event, DUR);
    const Number *n = &ts->number;
    double took_us = 0, took;
    int64_t start, end;
    uint64_t whole = n->thousand / 1000;
    if (ts->type != NUMBER || !n->fits || whole >= WHOLE_DOUBLE) return REFUSED;
    if (exact && n->negative) return REFUSED;
    if (!exact && n->places && whole >= COARSE_US) return COARSE;
    if (!exact && n->places > 3) {
        double us, floored;
        if (!to_double(ts, &us)) return REFUSED;
        floored = floor(us);
        start = (int64_t)floored * 1000 + (int64_t)floor((us - floored) * 1000 + 0.5);
    } else {
        start = n->negative ? -(int64_t)n->thousand : (int64_t)n->thousand;
    }
    if (dur->type != ABSENT && !to_double(dur, &took_us)) return REFUSED;
    took = floor(took_us * 1000 + 0.5); /* less than 2**63, since took_us is less than 2**53 */
    if (__builtin_add_overflow(start, took > 0 ? (int64_t)took : 0, &end)) return REFUSED;
    *negative += took < 0;
    put(row, C_START, start);
    put(row, C_END, end);
    return TAKEN;
}

/* A name's number and flags; -1 if Python cannot read it, -2 if it failed. */
static long find_name(Scanner *self, const Text *text)
{
    uint64_t hash = 1469598103934665603ULL;
    Known *known = NULL;
    PyObject *name, *found;
    long number;
    if (text->size <= MOST_CACHED) {
        Py_ssize_t i = 0;
        for (; i + 8 <= text->size; i += 8) {
            uint64_t x;
            memcpy(&x, text->at + i, 8);
            hash = (hash ^ x) * 0x9E3779B97F4A7C15ULL;
            hash ^= hash >> 29;
        }
        for (; i < text->size; i++) hash = (hash ^ (unsigned char)text->at[i]) * 1099511628211ULL;
        hash ^= hash >> 32;
        known = &self->cache[hash % CACHE];
        if (known->text && known->hash == hash && known->size == (uint32_t)text->size &&
            !memcmp(known->text, text->at, (size_t)text->size))
            return known->found;
    }
    name = PyBytes_FromStringAndSize(text->at, text->size);
    found = name ? PyObject_CallFunctionObjArgs(self->look, name, NULL) : NULL;
    Py_XDECREF(name);
    if (!found) return -2;
    number = PyLong_AsLong(found);
    Py_DECREF(found);
    if (number == -1 && PyErr_Occurred()) return -2;
    if (known && number >= 0) {
        char *copy = realloc(known->text, text->size ? (size_t)text->size : 1);
        if (copy) { /* without it the name is looked up again the next time */
            memcpy(copy, text->at, (size_t)text->size);
            known->text = copy;
            known->hash = hash;
            known->size = (uint32_t)text->size;
            known->found = number;
        }
    }
    return number;
}

static int put_external(Row *row, int cell, const Event *event)
{
    const Value *own = get(event, EXTERNAL);
    return put_whole(row, cell, own->type == ABSENT ? get(event, EXTERNAL_OLD) : own);
}

/* Bytes of a copy, or of what a collective moves. */
static int put_size(const Scanner *self, Row *row, const Event *event)
{
    const Value *elements = get(event, ELEMENTS), *dtype = get(event, DTYPE);
    int64_t count, each = 0;
    if (elements->type == ABSENT) return put_whole(row, D_SIZE, get(event, SIZE));
    if (elements->type != NUMBER || !to_whole(elements, 0, &count)) return 0;
    if (dtype->type == STRING && dtype->text.flags == PLAIN)
        each = find_word(self->dtypes, self->dtype_count, &dtype->text, 0);
    else if (dtype->type != ABSENT)
        return 0;
    if (!each) return put_whole(row, D_SIZE, get(event, SIZE));
    put(row, D_SIZE, count * each); /* 16 digits times 8 */
    return 1;
}

static int put_device(Scanner *self, Row *row, const Event *event)
{
    const Value *device = get(event, DEVICE), *stream = get(event, STREAM);
    const Value *group = get(event, GROUP);
    if (group->type == STRING) {
        long name = find_name(self, &group->text);
        if (name == -2) return FAILED;
        if (name < 0) return REFUSED;
        put(row, D_GROUP, name >> FLAG_BITS);
    } else if (group->type != ABSENT) {
        return REFUSED;
    }
    return put_whole(row, D_DEVICE, device->type == ABSENT ? get(event, PID) : device) &&
           put_whole(row, D_STREAM, stream->type == ABSENT ? get(event, TID) : stream) &&
           put_whole(row, D_CORRELATION, get(event, CORRELATION)) &&
           put_external(row, D_EXTERNAL, event) && put_size(self, row, event) &&
           put_sizes(row, D_BLOCKS, get(event, GRID)) &&
           put_sizes(row, D_THREADS, get(event, BLOCK)) &&
           put_whole(row, D_REGISTERS, get(event, REGISTERS)) &&
           put_whole(row, D_SHARED, get(event, SHARED)) &&
           put_double(row, D_OCCUPANCY, get(event, OCCUPANCY)) &&
           put_whole(row, D_GRAPH, get(event, GRAPH)) &&
           put_whole(row, D_SEQUENCE, get(event, SEQUENCE)) ? TAKEN : REFUSED;
}

static int put_mark(Scanner *self, const Row *row, int64_t name, const Event *event)
{
    Row mark = {(1u << M_WIDTH) - 1, {row->cells[C_AT], row->cells[C_START], row->cells[C_END], name}};
    int is_absent = get(event, ARGS)->type == ABSENT;
    PyObject *args = PyBytes_FromStringAndSize(is_absent ? "" : event->args.at,
                                               is_absent ? 0 : event->args.size);
    int failed = !args || PyList_Append(self->marks, args);
    Py_XDECREF(args);
    return failed ? FAILED : put_row(&self->sheets[self->sheet_count - 1], &mark);
}

static int put_host(Scanner *self, Row *row, const Event *event, const Sheet *sheet, long name)
{
    int64_t thread;
    if (!to_whole(get(event, TID), 1, &thread)) return REFUSED;
    put(row, H_THREAD, thread);
    if (sheet->kind == 'l' && !put_whole(row, H_CORRELATION, get(event, CORRELATION))) return REFUSED;
    if ((sheet->kind == 'l' || (name & SPECIAL)) && !put_external(row, H_EXTERNAL, event))
        return REFUSED;
    return name & MARKED ? put_mark(self, row, name >> FLAG_BITS, event) : TAKEN;
}

/* One complete event becomes a row; REFUSED if Python must read it. */
static int put_event(Scanner *self, const Event *event, Sheet *sheet, int64_t at, int exact)
{
    static const Text no_text = {"", 0, PLAIN};
    const Value *name = get(event, NAME), *args = get(event, ARGS);
    Row row = {0, {0}};
    long found, negative = 0;
    int outcome = put_times(&row, event, exact, &negative);
    if (outcome != TAKEN) return outcome;
    if (((event->seen >> NAME) & 1) && name->type != STRING) return REFUSED;
    found = find_name(self, name->type == STRING ? &name->text : &no_text);
    if (found == -2) return FAILED;
    if (found < 0) return REFUSED;
    if (args->type == OTHER && (sheet->kind != 'h' || (found & SPECIAL))) return REFUSED;
    put(&row, C_AT, at);
    put(&row, sheet->kind == 'd' ? (int)D_NAME : (int)H_NAME, found >> FLAG_BITS);
    outcome = sheet->kind == 'd' ? put_device(self, &row, event)
                                 : put_host(self, &row, event, sheet, found);
    if (outcome != TAKEN) return outcome;
    self->negative += negative;
    return put_row(sheet, &row);
}

/* What to do with an event whose text is sound. */
static int sort_out(Scanner *self, const Event *event, int64_t at, int exact)
{
    static const Text no_text = {"", 0, PLAIN};
    const Value *ph = get(event, PH), *cat = get(event, CAT), *name = get(event, NAME);
    long sheet;
    if (event->odd) return REFUSED;
    if (((event->seen >> PH) & 1) && (ph->type != STRING || ph->text.flags != PLAIN)) return REFUSED;
    if (((event->seen >> CAT) & 1) && (cat->type != STRING || cat->text.flags != PLAIN)) return REFUSED;
    sheet = find_word(self->categories, self->category_count,
                      cat->type == STRING ? &cat->text : &no_text, self->other);
    if (sheet >= 0 && is_text(ph, "X"))
        return put_event(self, event, &self->sheets[sheet], at, exact);
    if (sheet >= 0 && (is_text(ph, "B") || is_text(ph, "E"))) return REFUSED;
    /* Flows and marks: counted, no more; but nobody has looked at their names. */
    return name->type == STRING && (name->text.flags & DOUBTFUL) ? REFUSED : TAKEN;
}
