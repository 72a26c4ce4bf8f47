/* A stand-in for libnvidia-ml.so.1, so that the real bindings can be tested without a GPU.
 *
 * What it plays is set by environment variables, read when the library is initialised:
 *   FAKE_GPUS        how many devices (1)
 *   FAKE_INIT        error code of nvmlInit (0)
 *   FAKE_THROTTLED   index of a device that is too hot: 1.1 of 1.98 GHz
 *   FAKE_SICK        index of a device with memory and NVLink errors
 *   FAKE_NARROW      index of a device whose link came up x4 of x16
 *   FAKE_LOST        index of a device that is lost once the file FAKE_LOST_FILE exists
 *   FAKE_DENIED      index of a device that may not be opened
 *   FAKE_NO_GPM      error code of taking a GPM sample (0)
 *   FAKE_MIG         1: device 0 is cut into two slices
 *   FAKE_PROCESSES   a file with lines "device pid"; slice N of device 0 is device 100 + N
 * Compiled with -DOLD_DRIVER it lacks what a driver before 525 lacks: GPM and the new name of the
 * throttle reasons. Layouts and codes are those of nvml.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
#define SLICE 100
#define MAX_DEVICES 128

typedef struct { int index; } *device_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process_t;
typedef struct { unsigned long long reference, violation; } violation_t;
typedef union { double d; unsigned ui; unsigned long ul; unsigned long long ull; } value_t;
typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    value_t value;
} field_t;
typedef struct {
    unsigned id;
    int result;
    double value;
    const char *names[3];
} metric_t;
typedef struct {
    unsigned version, count;
    void *sample1, *sample2;
    metric_t metrics[];
} metrics_t;
typedef struct { int device, number; } sample_t;

static struct { int index; } devices[MAX_DEVICES];
static int gpus, throttled, sick, narrow, lost, denied, gpm_error, mig;
static const char *lost_file, *process_file;

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static int index_of(device_t device) { return device->index >= SLICE ? 0 : device->index; }

static int state(device_t device)
{
    return index_of(device) == lost && lost_file && access(lost_file, F_OK) == 0 ? LOST : OK;
}

#define ALIVE(device) do { int error = state(device); if (error) return error; } while (0)
#define WHOLE(device) do { ALIVE(device); if ((device)->index >= SLICE) return NOT_SUPPORTED; } while (0)

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    gpus = number("FAKE_GPUS", 1);
    throttled = number("FAKE_THROTTLED", -1);
    sick = number("FAKE_SICK", -1);
    narrow = number("FAKE_NARROW", -1);
    lost = number("FAKE_LOST", -1);
    denied = number("FAKE_DENIED", -1);
    gpm_error = number("FAKE_NO_GPM", 0);
    mig = number("FAKE_MIG", 0);
    lost_file = getenv("FAKE_LOST_FILE");
    process_file = getenv("FAKE_PROCESSES");
    for (int i = 0; i < MAX_DEVICES; i++) devices[i].index = i;
    return number("FAKE_INIT", 0);
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "stub error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "570.00"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = gpus; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device)
{
    if ((int)index >= gpus) return INVALID;
    if ((int)index == denied) return NO_PERMISSION;
    *device = (device_t)&devices[index];
    return state(*device);
}
int nvmlDeviceGetName(device_t device, char *name, unsigned size)
{
    ALIVE(device);
    snprintf(name, size, "NVIDIA H100 80GB HBM3%s", device->index >= SLICE ? " MIG 3g.40gb" : "");
    return OK;
}
int nvmlDeviceGetUUID(device_t device, char *text, unsigned size)
{
    snprintf(text, size, "%s-stub-%d", device->index >= SLICE ? "MIG" : "GPU", device->index);
    return OK;
}
int nvmlDeviceGetMemoryInfo(device_t device, memory_t *memory)
{
    ALIVE(device);
    memory->total = device->index >= SLICE ? 40ull << 30 : 80ull << 30;
    memory->used = 20ull << 30;
    memory->free = memory->total - memory->used;
    return OK;
}
int nvmlDeviceGetUtilizationRates(device_t device, utilization_t *rates)
{
    WHOLE(device);
    if (mig) return NOT_SUPPORTED;
    rates->gpu = 95;
    rates->memory = 40;
    return OK;
}
int nvmlDeviceGetPowerUsage(device_t device, unsigned *mw) { WHOLE(device); *mw = 650000; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(device_t device, unsigned *mw) { WHOLE(device); *mw = 700000; return OK; }
int nvmlDeviceGetPowerManagementDefaultLimit(device_t device, unsigned *mw)
{
    WHOLE(device);
    *mw = 700000;
    return OK;
}
int nvmlDeviceGetClockInfo(device_t device, int type, unsigned *mhz)
{
    (void)type;
    WHOLE(device);
    *mhz = index_of(device) == throttled ? 1100 : 1980;
    return OK;
}
int nvmlDeviceGetMaxClockInfo(device_t device, int type, unsigned *mhz)
{
    (void)type;
    WHOLE(device);
    *mhz = 1980;
    return OK;
}
int nvmlDeviceGetTemperature(device_t device, int sensor, unsigned *celsius)
{
    (void)sensor;
    WHOLE(device);
    *celsius = index_of(device) == throttled ? 91 : 62;
    return OK;
}
static int reasons(device_t device, unsigned long long *bits)
{
    WHOLE(device);
    *bits = index_of(device) == throttled ? 0x8 | 0x40 : 0;
    return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t d, unsigned long long *bits) { return reasons(d, bits); }
int nvmlDeviceGetViolationStatus(device_t device, int policy, violation_t *times)
{
    WHOLE(device);
    times->reference = 0;
    times->violation = index_of(device) == throttled && policy == 1 ? 5000000000ull : 0;
    return OK;
}
int nvmlDeviceGetMaxPcieLinkGeneration(device_t device, unsigned *gen) { WHOLE(device); *gen = 5; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(device_t device, unsigned *gen) { WHOLE(device); *gen = 5; return OK; }
int nvmlDeviceGetMaxPcieLinkWidth(device_t device, unsigned *width) { WHOLE(device); *width = 16; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(device_t device, unsigned *width)
{
    WHOLE(device);
    *width = index_of(device) == narrow ? 4 : 16;
    return OK;
}
int nvmlDeviceGetFieldValues(device_t device, int count, field_t *fields)
{
    WHOLE(device);
    int is_sick = index_of(device) == sick;
    for (int i = 0; i < count; i++) {
        fields[i].result = fields[i].field == 31 ? NOT_SUPPORTED : OK; /* no retired pages here */
        fields[i].type = fields[i].field == 4 ? 3 : 1;
        fields[i].value.ull = 0;
        if (is_sick && fields[i].field == 4) fields[i].value.ull = 3;
        if (is_sick && fields[i].field == 144) fields[i].value.ui = 1;
    }
    return OK;
}
int nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending)
{
    *current = *pending = mig && device->index == 0;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned *count) { (void)device; *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned index, device_t *slice)
{
    (void)device;
    if (index >= 2) return NOT_FOUND;
    *slice = (device_t)&devices[SLICE + index];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(device_t device, unsigned *id) { *id = device->index - SLICE; return OK; }
int nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, process_t *processes)
{
    ALIVE(device);
    unsigned room = processes ? *count : 0, found = 0;
    FILE *file = process_file ? fopen(process_file, "r") : NULL;
    int index;
    unsigned pid;
    while (file && fscanf(file, "%d %u", &index, &pid) == 2) {
        if (index != device->index) continue;
        if (found < room) processes[found] = (process_t){pid, 18ull << 30, -1, -1};
        found++;
    }
    if (file) fclose(file);
    *count = found;
    return found > room ? TOO_SMALL : OK;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetCurrentClocksEventReasons(device_t d, unsigned long long *bits) { return reasons(d, bits); }
int nvmlGpmQueryDeviceSupport(device_t device, unsigned support[2]) { (void)device; support[1] = 1; return OK; }
int nvmlGpmSampleAlloc(void **sample) { *sample = calloc(1, sizeof(sample_t)); return OK; }
int nvmlGpmSampleFree(void *sample) { free(sample); return OK; }
static int take(device_t device, sample_t *sample)
{
    static int taken;
    ALIVE(device);
    if (gpm_error) return gpm_error;
    sample->number = ++taken;
    return OK;
}
int nvmlGpmSampleGet(device_t device, void *sample) { return mig ? NOT_SUPPORTED : take(device, sample); }
int nvmlGpmMigSampleGet(device_t device, unsigned instance, void *sample) { (void)instance; return take(device, sample); }
int nvmlGpmMetricsGet(metrics_t *request)
{
    if (((sample_t *)request->sample2)->number <= ((sample_t *)request->sample1)->number) return INVALID;
    for (unsigned i = 0; i < request->count; i++) {
        metric_t *metric = &request->metrics[i];
        metric->result = metric->id == 60 || metric->id == 61 ? NOT_SUPPORTED : OK;
        metric->value = metric->id == 1 ? 90 : metric->id == 2 ? 60 : metric->id == 3 ? 30 : metric->id == 5 ? 20
            : metric->id >= 20 ? 1024 : 50;
    }
    return OK;
}
#endif
