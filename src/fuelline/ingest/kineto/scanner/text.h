/* JSON text: strings, numbers, values. What is refused here is left to Python.

   No byte is read before it was compared with the end. A NULL means that the text is not plainly
   well-formed. */

#pragma once
#define Py_LIMITED_API 0x030A0000 /* one build serves every Python since 3.10 */
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "strings are looked through eight bytes at a time, lowest first"
#endif

enum { MOST_DEPTH = 32 };
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
