/* Rows become columns, as Arrow structures that polars reads in place:
   https://arrow.apache.org/docs/format/CDataInterface.html */

#pragma once
#include "rows.h"

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
