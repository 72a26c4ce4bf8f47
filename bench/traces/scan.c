/* The plain scan that reading a trace is compared with: one pass over its text, no columns.
 *
 *     cc -O2 -o scan scan.c -lz && ./scan TRACE.json[.gz]
 *
 * Takes strings and brackets apart, reads every "ts" and "dur", counts the events and adds up what they
 * took; prints both, so that no compiler leaves the work out.
 */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum { ROOM = 1 << 18, MOST = 512 };

int main(int argc, char **argv) {
  gzFile file = argc > 1 ? gzopen(argv[1], "rb") : NULL; /* reads what is not packed as it is */
  if (!file) return 2;
  gzbuffer(file, ROOM);
  static char text[ROOM];
  char key[MOST];
  size_t length = 0;
  int in_string = 0, escaped = 0, depth = 0, number = 0, fraction = 0;
  double value = 0, scale = 1, took = 0;
  long events = 0, times = 0, got;
  while ((got = gzread(file, text, ROOM)) > 0) {
    for (long at = 0; at < got; at++) {
      char c = text[at];
      if (in_string) {
        if (escaped) escaped = 0;
        else if (c == '\\') escaped = 1;
        else if (c == '"') in_string = 0;
        else if (length < MOST) key[length++] = c;
        continue;
      }
      if (number) {
        if (c >= '0' && c <= '9') {
          value = value * 10 + (c - '0');
          if (fraction) scale *= 10;
          continue;
        }
        if (c == '.') { fraction = 1; continue; }
        if (c == ' ' && value == 0) continue;
        if (number == 2) took += value / scale; else times++;
        number = 0;
      }
      switch (c) {
      case '"': in_string = 1; length = 0; break;
      case '{': depth++; break;
      case '}': if (--depth == 1) events++; break;
      case ':':
        if (length == 2 && !memcmp(key, "ts", 2)) number = 1;
        else if (length == 3 && !memcmp(key, "dur", 3)) number = 2;
        value = 0, scale = 1, fraction = 0;
        break;
      }
    }
  }
  printf("%ld events, %ld times, %.0f us\n", events, times, took);
  return gzclose(file) != Z_OK;
}
