/* One event: the values of the keys that somebody asks for, wherever in it they stand. */

#pragma once
#include "text.h"

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
