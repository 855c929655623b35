/* A libnvidia-ml.so.1 without a driver behind it: it answers from a file of lines `key value`.
 *
 * FAKE_NVML names the file, which box.py writes. A device's keys begin with `gpu.3.` or, for a
 * MIG device, `gpu.3.mig.1.`. `….fail.FUNCTION` is the code with which a function fails there, and
 * `fail.FUNCTION` that with which it fails everywhere. What has no key is not supported.
 * FAKE_NVML_LOG names a file to which each call of nvmlInit and nvmlShutdown is written.
 *
 * Signatures and numbers are those of nvml.h 12.
 */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };
enum { MOST_LINES = 4096, LINE = 2048, MOST_SLICES = 16 };

typedef char *Device; /* the beginning of its keys */
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} Pci;
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } Process;
typedef struct { unsigned sm, shared[5], gi_slices, ci_slices; unsigned long long memory_mib; } Attributes;

static char lines[MOST_LINES][LINE];
static int count_of_lines = -1;
static int opened = 0;

static void note(const char *call) {
    const char *path = getenv("FAKE_NVML_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s\n", call);
        fclose(log);
    }
}

static void load(void) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) {
        fprintf(stderr, "fake NVML: FAKE_NVML names no file that can be read\n");
        abort();
    }
    count_of_lines = 0;
    while (count_of_lines < MOST_LINES && fgets(lines[count_of_lines], LINE, file)) {
        lines[count_of_lines][strcspn(lines[count_of_lines], "\n")] = 0;
        count_of_lines++;
    }
    fclose(file);
}

/* The value of the key that the format makes; NULL where there is none. */
static const char *value(const char *format, ...) {
    char key[LINE];
    va_list arguments;
    if (count_of_lines < 0) load();
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    size_t length = strlen(key);
    for (int i = 0; i < count_of_lines; i++)
        if (!strncmp(lines[i], key, length) && lines[i][length] == ' ') return lines[i] + length + 1;
    return NULL;
}

/* As a call does that hangs in the kernel. */
static void hang(const char *function) {
    if (!value("hang.%s", function)) return;
    note("hang");
    for (;;) pause();
}

static int failure(Device device, const char *function) {
    hang(function);
    if (!opened) return UNINITIALIZED;
    const char *code = value("fail.%s", function);
    if (!code && device) code = value("%sfail.%s", device, function);
    return code ? atoi(code) : OK;
}

/* Each function begins with this. */
#define BEGIN(device)                              \
    do {                                           \
        int code = failure((device), __func__);    \
        if (code) return code;                     \
    } while (0)

static int copy(char *to, unsigned size, const char *found) {
    if (!found) return NOT_SUPPORTED;
    if (strlen(found) >= size) return TOO_SMALL;
    strcpy(to, found);
    return OK;
}

static int number(unsigned *to, const char *found) {
    if (!found) return NOT_SUPPORTED;
    *to = strtoul(found, NULL, 10);
    return OK;
}

/* `0,1,64` as bits. */
static int bits(unsigned long *set, unsigned words, const char *found) {
    if (!found) return NOT_SUPPORTED;
    memset(set, 0, words * sizeof *set);
    while (*found) {
        char *end;
        unsigned long bit = strtoul(found, &end, 10);
        if (bit / 64 < words) set[bit / 64] |= 1UL << bit % 64;
        found = *end ? end + 1 : end;
    }
    return OK;
}

/* A prefix of keys that lives as long as the library. */
static Device device_of(const char *format, ...) {
    static char *known[MOST_LINES];
    static int count;
    char key[LINE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    for (int i = 0; i < count; i++)
        if (!strcmp(known[i], key)) return known[i];
    return known[count++] = strdup(key);
}

static unsigned index_of(Device device) { return strtoul(device + strlen("gpu."), NULL, 10); }

/* The library itself. */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    hang(__func__);
    const char *code = value("fail.%s", __func__);
    if (code) return atoi(code);
    note("init");
    opened++;
    return OK;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    if (!opened) return UNINITIALIZED;
    note("shutdown");
    opened--;
    return OK;
}

const char *nvmlErrorString(int code) {
    (void)code;
    return "an error without words";
}

int nvmlSystemGetDriverVersion(char *to, unsigned size) {
    BEGIN(NULL);
    return copy(to, size, value("driver"));
}

int nvmlSystemGetCudaDriverVersion(int *to) {
    BEGIN(NULL);
    return number((unsigned *)to, value("cuda"));
}

int nvmlSystemGetCudaDriverVersion_v2(int *to) {
    BEGIN(NULL);
    return number((unsigned *)to, value("cuda"));
}

int nvmlSystemGetProcessName(unsigned pid, char *to, unsigned size) {
    BEGIN(NULL);
    const char *name = value("process.%u", pid);
    return name ? copy(to, size, name) : NOT_FOUND;
}

/* Cards. */

int nvmlDeviceGetCount_v2(unsigned *to) {
    BEGIN(NULL);
    return number(to, value("count"));
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *to) {
    unsigned count = 0;
    BEGIN(NULL);
    number(&count, value("count"));
    if (index >= count) return INVALID;
    BEGIN(device_of("gpu.%u.", index));
    *to = device_of("gpu.%u.", index);
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device *to) {
    unsigned count = 0;
    BEGIN(NULL);
    number(&count, value("count"));
    for (unsigned i = 0; i < count; i++) {
        const char *found = value("gpu.%u.uuid", i);
        if (found && !strcmp(found, uuid)) {
            BEGIN(device_of("gpu.%u.", i));
            *to = device_of("gpu.%u.", i);
            return OK;
        }
        for (unsigned j = 0; j < MOST_SLICES; j++) {
            found = value("gpu.%u.mig.%u.uuid", i, j);
            if (found && !strcmp(found, uuid)) {
                *to = device_of("gpu.%u.mig.%u.", i, j);
                return OK;
            }
        }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetName(Device device, char *to, unsigned size) {
    BEGIN(device);
    return copy(to, size, value("%sname", device));
}

int nvmlDeviceGetUUID(Device device, char *to, unsigned size) {
    BEGIN(device);
    return copy(to, size, value("%suuid", device));
}

int nvmlDeviceGetIndex(Device device, unsigned *to) {
    BEGIN(device);
    *to = index_of(device);
    return OK;
}

int nvmlDeviceGetMinorNumber(Device device, unsigned *to) {
    BEGIN(device);
    return number(to, value("%sminor", device));
}

int nvmlDeviceGetPciInfo_v3(Device device, Pci *to) {
    BEGIN(device);
    memset(to, 0, sizeof *to);
    return copy(to->bus_id, sizeof to->bus_id, value("%sbus", device));
}

int nvmlDeviceGetMemoryInfo(Device device, Memory *to) {
    BEGIN(device);
    const char *total = value("%smemory", device), *used = value("%sused", device);
    if (!total || !used) return NOT_SUPPORTED;
    to->total = strtoull(total, NULL, 10);
    to->used = strtoull(used, NULL, 10);
    to->free = to->total - to->used;
    return OK;
}

int nvmlDeviceGetUtilizationRates(Device device, Utilization *to) {
    BEGIN(device);
    to->memory = 0;
    return number(&to->gpu, value("%sutilisation", device));
}

int nvmlDeviceGetPowerUsage(Device device, unsigned *to) {
    BEGIN(device);
    return number(to, value("%spower", device));
}

int nvmlDeviceGetMemoryAffinity(Device device, unsigned words, unsigned long *set, unsigned scope) {
    (void)scope;
    BEGIN(device);
    return bits(set, words, value("%snuma", device));
}

int nvmlDeviceGetCpuAffinity(Device device, unsigned words, unsigned long *set) {
    BEGIN(device);
    return bits(set, words, value("%scpus", device));
}

int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    BEGIN(device);
    const char *found = value("%scapability", device);
    return found && sscanf(found, "%d.%d", major, minor) == 2 ? OK : NOT_SUPPORTED;
}

/* Processes. */

static int processes(Device device, const char *kind, unsigned *count, Process *to) {
    unsigned found = 0;
    if (number(&found, value("%s%s", device, kind))) return NOT_SUPPORTED;
    unsigned room = *count;
    *count = found;
    if (found > room || (found && !to)) return TOO_SMALL;
    for (unsigned i = 0; i < found; i++) {
        memset(&to[i], 0, sizeof to[i]);
        number(&to[i].pid, value("%s%s.%u.pid", device, kind, i));
        const char *memory = value("%s%s.%u.memory", device, kind, i);
        to[i].memory = memory ? strtoull(memory, NULL, 10) : ~0ULL; /* not available */
    }
    return OK;
}

#define PROCESSES(function, kind)                                     \
    int function(Device device, unsigned *count, Process *to) {       \
        BEGIN(device);                                                \
        return processes(device, kind, count, to);                    \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "compute")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")

/* MIG. */

int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    BEGIN(device);
    int code = number(current, value("%smig", device));
    *pending = *current;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *to) {
    BEGIN(device);
    *to = value("%smig", device) ? 7 : 0;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *to) {
    BEGIN(device);
    if (!value("%smig.%u.uuid", device, index)) return NOT_FOUND;
    *to = device_of("%smig.%u.", device, index);
    BEGIN(*to);
    return OK;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device device, Device *to) {
    BEGIN(device);
    *to = device_of("gpu.%u.", index_of(device));
    return OK;
}

int nvmlDeviceGetAttributes_v2(Device device, Attributes *to) {
    BEGIN(device);
    memset(to, 0, sizeof *to);
    return number(&to->gi_slices, value("%ssevenths", device));
}

/* How cards are connected. */

int nvmlDeviceGetTopologyCommonAncestor(Device first, Device second, unsigned *to) {
    BEGIN(first);
    return number(to, value("path.%u.%u", index_of(first), index_of(second)));
}

int nvmlDeviceGetP2PStatus(Device first, Device second, unsigned what, unsigned *to) {
    BEGIN(first);
    return number(to, value("p2p.%u.%u.%u", index_of(first), index_of(second), what));
}
