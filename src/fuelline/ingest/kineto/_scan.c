/* Text of a piece of a Chrome trace in, rows of tables out: the fast half of scan.py.

   It takes what profilers usually write and refuses everything else: an event with a value of
   another type, an escape in a key, a key twice or a number that a double does not hold is left to
   Python ("odd"), and a piece that is not plainly well-formed is left to Python as a whole. So it
   need not know what is right in such cases, and both always give the same tables
   (tests/unit/ingest/kineto/test_same.py). No byte is read before it was compared with the end.

   Rows are arrays of 64-bit cells with a mask of those that are known; they become columns when
   Python takes them, as Arrow structures (https://arrow.apache.org/docs/format/CDataInterface.html)
   that polars reads in place. Limited API, so that one build serves every Python since 3.10. */

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "strings are looked through eight bytes at a time, lowest first"
#endif

enum { MOST_DEPTH = 32, MOST_SHEETS = 16, MOST_WORDS = 64, MOST_ODD = 32 };
enum { TAKEN = 0, REFUSED = 1, COARSE = 2, FAILED = 3 }; /* what became of a piece or an event */
enum { LAYOUT = 1 };        /* of what Python and this file say to each other; see scan.py */
#define WHOLE_DOUBLE 9007199254740992ULL /* 2**53: whole numbers below fit a double */
#define COARSE_US 8796093022208ULL       /* 2**43: fractions from here on are coarser than 1 ns */

/* ------------------------------------------------------------------ text */

enum { PLAIN = 0, ESCAPED = 1, DOUBTFUL = 2 }; /* simple escapes; anything that must be decoded */

typedef struct {
    const char *at;
    Py_ssize_t size;
    int flags;
} Text;

typedef struct {
    uint64_t digits;   /* all of them, without the point */
    uint64_t thousand; /* whole part times 1000, and three digits behind the point */
    int places;        /* digits behind the point */
    int negative, fits; /* fits: no exponent, and `digits` holds all of them */
} Number;

typedef enum { ABSENT, NUMBER, STRING, SIZES, OBJECT, OTHER } Type;

typedef struct {
    Type type;
    Number number; /* of SIZES: `digits` is the product */
    Text text;
} Value;

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
    return p;
}

/* What may stand behind a backslash; returns behind it, NULL if it may not. */
static const char *skip_escape(const char *p, const char *end, int *flags)
{
    if (p >= end) return NULL;
    *flags |= *p == 'u' ? DOUBTFUL : ESCAPED; /* four digits, perhaps half a pair: Python knows */
    return strchr("\"\\/bfnrtu", *p) && *p ? p + 1 : NULL;
}

/* p stands behind the opening quote; returns behind the closing one, NULL if there is none. */
static const char *read_string(const char *p, const char *end, Text *text)
{
    const uint64_t ones = 0x0101010101010101ULL, tops = 0x8080808080808080ULL;
    text->at = p;
    text->flags = PLAIN;
    for (;;) {
        while (end - p >= 8) { /* eight bytes at a time: quote, backslash, control, not ASCII */
            uint64_t x, quote, slash, found;
            memcpy(&x, p, 8);
            quote = x ^ (ones * '"');
            slash = x ^ (ones * '\\');
            found = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((x - ones * 32) & ~x);
            found = (found | x) & tops;
            if (found) {
                p += __builtin_ctzll(found) / 8;
                break;
            }
            p += 8;
        }
        if (p >= end) return NULL;
        if (*p == '"') break;
        if (*p == '\\') {
            p = skip_escape(p + 1, end, &text->flags);
            if (!p) return NULL;
        } else if ((unsigned char)*p < 32) {
            return NULL;
        } else {
            if ((unsigned char)*p >= 128) text->flags |= DOUBTFUL;
            p++;
        }
    }
    text->size = p - text->at;
    return p + 1;
}

static const char *skip_digits(const char *p, const char *end)
{
    const char *start = p;
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p > start ? p : NULL;
}

static const char *read_number(const char *p, const char *end, Number *n)
{
    const char *start;
    uint64_t digits = 0, worth = 1000;
    n->negative = p < end && *p == '-';
    start = p += n->negative;
    for (; p < end && *p >= '0' && *p <= '9'; p++) digits = digits * 10 + (uint64_t)(*p - '0');
    if (p == start || (*start == '0' && p - start > 1)) return NULL;
    n->places = 0;
    n->fits = p - start <= 16; /* more may have overflowed; three places still fit behind 16 */
    if (p < end && *p == '.') {
        const char *point = p++;
        for (; p < end && *p >= '0' && *p <= '9'; p++) {
            digits = digits * 10 + (uint64_t)(*p - '0');
            if (p - point == 3) n->thousand = digits;
        }
        if (p == point + 1) return NULL;
        n->fits &= p - start <= 19; /* 18 digits and the point */
        n->places = n->fits ? (int)(p - point - 1) : 0;
    }
    n->digits = digits;
    for (int i = 0; i < n->places && i < 3; i++) worth /= 10;
    if (n->places < 3) n->thousand = digits * worth;
    if (p < end && (*p == 'e' || *p == 'E')) {
        n->fits = 0;
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        p = skip_digits(p, end);
    }
    return p;
}

static const char *skip_word(const char *p, const char *end, const char *word)
{
    size_t size = strlen(word);
    return (size_t)(end - p) >= size && !memcmp(p, word, size) ? p + size : NULL;
}

/* Any value; NULL if it is none or too deep. `doubt` is set by strings that must be decoded. */
static const char *skip_value(const char *p, const char *end, int depth, int *doubt)
{
    Text text;
    Number number;
    char close;
    if (p >= end || depth > MOST_DEPTH) return NULL;
    switch (*p) {
    case '"':
        p = read_string(p + 1, end, &text);
        if (p) *doubt |= text.flags & DOUBTFUL;
        return p;
    case 't': return skip_word(p, end, "true");
    case 'f': return skip_word(p, end, "false");
    case 'n': return skip_word(p, end, "null");
    case '{':
    case '[': break;
    default: return read_number(p, end, &number);
    }
    close = *p == '{' ? '}' : ']';
    p = skip_space(p + 1, end);
    if (p < end && *p == close) return p + 1;
    for (;;) {
        if (close == '}') {
            if (p >= end || *p != '"' || !(p = read_string(p + 1, end, &text))) return NULL;
            *doubt |= text.flags & DOUBTFUL;
            p = skip_space(p, end);
            if (p >= end || *p != ':') return NULL;
            p = skip_space(p + 1, end);
        }
        p = skip_value(p, end, depth + 1, doubt);
        if (!p) return NULL;
        p = skip_space(p, end);
        if (p >= end) return NULL;
        if (*p == close) return p + 1;
        if (*p != ',') return NULL;
        p = skip_space(p + 1, end);
    }
}

/* `[8, 1, 1]` -> 8; anything but whole numbers of moderate size is OTHER. */
static const char *read_sizes(const char *p, const char *end, Value *value, int *doubt)
{
    const char *start = p;
    uint64_t product = 1;
    int fits;
    Number n;
    do {
        fits = 0; /* until a number stands here, and not the end or something else */
        p = skip_space(p + 1, end);
        if (p >= end || *p < '0' || *p > '9') break;
        p = read_number(p, end, &n);
        if (!p) return NULL;
        fits = n.fits && !n.places && !__builtin_mul_overflow(product, n.digits, &product);
        p = skip_space(p, end);
    } while (fits && p < end && *p == ',');
    if (fits && p < end && *p == ']' && product <= INT64_MAX) {
        value->type = SIZES;
        value->number.digits = product;
        return p + 1;
    }
    value->type = OTHER;
    return skip_value(start, end, 0, doubt);
}

static const char *read_value(const char *p, const char *end, Value *value, int *doubt)
{
    if (p >= end) return NULL;
    if (*p == '"') {
        value->type = STRING;
        return read_string(p + 1, end, &value->text);
    }
    if (*p == '-' || (*p >= '0' && *p <= '9')) {
        value->type = NUMBER;
        return read_number(p, end, &value->number);
    }
    if (*p == '[') return read_sizes(p, end, value, doubt);
    value->type = *p == 'n' ? ABSENT : OTHER; /* null says nothing */
    return skip_value(p, end, 0, doubt);
}

/* ----------------------------------------------------------------- events */

enum { /* keys of an event, then those of its arguments that are asked for */
    PH, CAT, NAME, PID, TID, TS, DUR, ARGS,
    EXTERNAL, EXTERNAL_OLD, DEVICE, STREAM, CORRELATION, SIZE, REGISTERS, SHARED, GRID, BLOCK,
    OCCUPANCY, GRAPH, GROUP, SEQUENCE, ELEMENTS, DTYPE, KEYS
};

static const char *const KEY_NAMES[KEYS] = {
    "ph", "cat", "name", "pid", "tid", "ts", "dur", "args",
    "External id", "external id", "device", "stream", "correlation", "bytes",
    "registers per thread", "shared memory", "grid", "block", "est. achieved occupancy %",
    "graph id", "Process Group Name", "Seq", "In msg nelems", "dtype"
};
enum { SLOTS = 64, KEY_FACTOR = 8 }; /* found by trying: no two keys share a slot */
static struct {
    unsigned char size, key; /* size 0: no key here */
} KEY_SLOTS[SLOTS]; /* set when the module is made, which fails if two keys want the same slot */

static int find_slot(const char *at, Py_ssize_t size)
{
    return (int)(((unsigned char)at[0] + KEY_FACTOR * (size_t)size + (unsigned char)at[size - 1]) % SLOTS);
}

typedef struct {
    Value values[KEYS];
    uint32_t seen;
    Text args;   /* all of them, brackets included */
    int odd;     /* Python must read it */
} Event;

static int find_key(const Text *key, int first, int last)
{
    int slot, k;
    if (!key->size) return -1;
    slot = find_slot(key->at, key->size);
    k = KEY_SLOTS[slot].key;
    if (KEY_SLOTS[slot].size != key->size || k < first || k >= last) return -1;
    return memcmp(KEY_NAMES[k], key->at, (size_t)key->size) ? -1 : k;
}

/* p stands behind the opening brace; keys from `first` to `last` are kept. */
static const char *read_object(const char *p, const char *end, Event *event, int first, int last)
{
    Text key;
    p = skip_space(p, end);
    if (p < end && *p == '}') return p + 1;
    for (;;) {
        int k;
        if (p >= end || *p != '"' || !(p = read_string(p + 1, end, &key))) return NULL;
        p = skip_space(p, end);
        if (p >= end || *p != ':') return NULL;
        p = skip_space(p + 1, end);
        event->odd |= key.flags != PLAIN;
        k = find_key(&key, first, last);
        if (k >= 0) {
            if ((event->seen >> k) & 1) event->odd = 1; /* twice */
            event->seen |= 1u << k;
        }
        if (k == ARGS) {
            event->args.at = p;
            event->values[ARGS].type = OTHER;
            if (p < end && *p == '{') {
                event->values[ARGS].type = OBJECT;
                p = read_object(p + 1, end, event, EXTERNAL, KEYS);
            } else {
                p = skip_value(p, end, 0, &event->odd);
            }
            if (p) event->args.size = p - event->args.at;
        } else if (k >= 0) {
            Value *value = &event->values[k];
            p = read_value(p, end, value, &event->odd);
            if (p && k != NAME && value->type == STRING) event->odd |= value->text.flags & DOUBTFUL;
        } else {
            p = skip_value(p, end, 0, &event->odd);
        }
        if (!p) return NULL;
        p = skip_space(p, end);
        if (p >= end) return NULL;
        if (*p == '}') return p + 1;
        if (*p != ',') return NULL;
        p = skip_space(p + 1, end);
    }
}

static const Value *get(const Event *event, int key)
{
    static const Value nothing = {ABSENT, {0, 0, 0, 0, 0}, {NULL, 0, 0}};
    return (event->seen >> key) & 1 ? &event->values[key] : &nothing;
}

static int is_text(const Value *value, const char *text)
{
    return value->type == STRING && value->text.flags == PLAIN &&
           (size_t)value->text.size == strlen(text) &&
           !memcmp(value->text.at, text, (size_t)value->text.size);
}

/* ------------------------------------------------------------------- rows */

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
    PyObject *found;
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
    found = PyObject_CallFunction(self->look, "y#", text->at, text->size);
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

/* ----------------------------------------------------------------- Python */

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

/* Arrow's structures, as its specification prints them. */
struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

/* A table and its columns in one block of memory, which the table's release gives back. */
typedef struct {
    struct ArrowSchema table, *pointers[D_WIDTH], columns[D_WIDTH];
} SchemaBlock;
typedef struct {
    struct ArrowArray table, *pointers[D_WIDTH], columns[D_WIDTH];
    const void *buffers[D_WIDTH][2], *no_buffer[1];
    void *memory;
} ArrayBlock;

static void release_schema_column(struct ArrowSchema *column) { column->release = NULL; }
static void release_array_column(struct ArrowArray *column) { column->release = NULL; }

static void release_schema(struct ArrowSchema *table)
{
    free(table->private_data);
    table->release = NULL;
}

static void release_array(struct ArrowArray *table)
{
    ArrayBlock *block = table->private_data;
    free(block->memory);
    free(block);
    table->release = NULL;
}

static void destroy_schema(PyObject *capsule)
{
    struct ArrowSchema *table = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (table->release) table->release(table);
    free(table);
}

static void destroy_array(PyObject *capsule)
{
    struct ArrowArray *table = PyCapsule_GetPointer(capsule, "arrow_array");
    if (table->release) table->release(table);
    free(table);
}

static PyObject *export_schema(const Sheet *sheet)
{
    SchemaBlock *block = calloc(1, sizeof *block);
    struct ArrowSchema *table = malloc(sizeof *table);
    PyObject *capsule;
    if (!block || !table) {
        free(block);
        free(table);
        return PyErr_NoMemory();
    }
    for (int i = 0; i < sheet->width; i++) {
        int is_float = sheet->kind == 'd' && i == D_OCCUPANCY;
        struct ArrowSchema *column = block->pointers[i] = &block->columns[i];
        column->format = is_float ? "g" : "l"; /* double; 64-bit integer */
        column->name = sheet->columns[i];
        column->flags = 2; /* may be null */
        column->release = release_schema_column;
    }
    *table = (struct ArrowSchema){.format = "+s", .name = "", .n_children = sheet->width,
                                  .children = block->pointers, .release = release_schema,
                                  .private_data = block};
    capsule = PyCapsule_New(table, "arrow_schema", destroy_schema);
    if (!capsule) {
        release_schema(table);
        free(table);
    }
    return capsule;
}

/* Rows become columns. */
static void turn(const Sheet *sheet, ArrayBlock *block, char *memory)
{
    size_t rows = (size_t)sheet->kept, stride = (size_t)sheet->width + 1, bitmap = (rows + 63) / 64 * 8;
    for (int i = 0; i < sheet->width; i++) {
        unsigned char *known = (unsigned char *)memory;
        int64_t *values = (int64_t *)(memory + bitmap), nulls = 0;
        struct ArrowArray *column = block->pointers[i] = &block->columns[i];
        for (size_t row = 0; row < rows; row++) {
            const int64_t *from = sheet->rows + row * stride;
            int is_known = (int)(((uint64_t)from[0] >> i) & 1);
            known[row / 8] |= (unsigned char)(is_known << (row % 8));
            values[row] = from[1 + i];
            nulls += !is_known;
        }
        block->buffers[i][0] = nulls ? known : NULL;
        block->buffers[i][1] = values;
        *column = (struct ArrowArray){.length = (int64_t)rows, .null_count = nulls, .n_buffers = 2,
                                      .buffers = block->buffers[i],
                                      .release = release_array_column};
        memory += bitmap + rows * 8;
    }
}

static PyObject *export_rows(const Sheet *sheet)
{
    size_t rows = (size_t)sheet->kept, one = (rows + 63) / 64 * 8 + rows * 8;
    ArrayBlock *block = calloc(1, sizeof *block);
    struct ArrowArray *table = malloc(sizeof *table);
    char *memory = calloc((size_t)sheet->width, one ? one : 1);
    PyObject *capsule;
    if (!block || !table || !memory) {
        free(block);
        free(table);
        free(memory);
        return PyErr_NoMemory();
    }
    block->memory = memory;
    turn(sheet, block, memory);
    *table = (struct ArrowArray){.length = (int64_t)rows, .n_buffers = 1,
                                 .buffers = block->no_buffer, .n_children = sheet->width,
                                 .children = block->pointers, .release = release_array,
                                 .private_data = block};
    capsule = PyCapsule_New(table, "arrow_array", destroy_array);
    if (!capsule) {
        release_array(table);
        free(table);
    }
    return capsule;
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
        const char *text;
        Py_ssize_t length;
        long value;
        PyObject *pair = PySequence_GetItem(pairs, i);
        int fine = pair && PyArg_ParseTuple(pair, "y#l", &text, &length, &value);
        char *copy = fine ? malloc((size_t)length + 1) : NULL;
        if (copy) {
            memcpy(copy, text, (size_t)length);
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
    PyObject *look, *categories, *dtypes;
    const char *kinds;
    Py_ssize_t size;
    long other;
    Scanner *self;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    if (!PyArg_ParseTuple(args, "OOOy#l", &look, &categories, &dtypes, &kinds, &size, &other)) return NULL;
    self = (Scanner *)allocate(type, 0); /* zeroed */
    if (!self) return NULL;
    Py_INCREF(look);
    self->look = look;
    self->other = other;
    self->cache = calloc(CACHE, sizeof *self->cache);
    self->marks = PyList_New(0);
    if (!self->cache && self->marks) PyErr_NoMemory();
    if (!self->cache || !self->marks || make_sheets(self, kinds, size) ||
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

static int fill_slots(void)
{
    memset(KEY_SLOTS, 0, sizeof KEY_SLOTS);
    for (int k = 0; k < KEYS; k++) {
        size_t size = strlen(KEY_NAMES[k]);
        int slot = find_slot(KEY_NAMES[k], (Py_ssize_t)size);
        if (KEY_SLOTS[slot].size) {
            PyErr_SetString(PyExc_ImportError, "two keys in one slot: choose another KEY_FACTOR");
            return -1;
        }
        KEY_SLOTS[slot].size = (unsigned char)size;
        KEY_SLOTS[slot].key = (unsigned char)k;
    }
    return 0;
}

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
