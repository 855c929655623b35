/* A CUDA driver without a card, for the tests: it shows the cards that FAKE_CUDA lists
 * (`GPU-…,GPU-…`), narrowed by CUDA_VISIBLE_DEVICES as the real one does it: by UUID, by the
 * beginning of one, or by index; the first that is unknown ends the list. FAKE_CUDA_INIT is what
 * cuInit returns. OLD leaves out what drivers before 11.4 had not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX 64

typedef struct { unsigned char bytes[16]; } CUuuid;

static char box[MAX][64];
static int cards, visible[MAX], shown = -1;

static int find(const char *word) {
    char *end;
    long index = strtol(word, &end, 10);
    if (*word && !*end) return index >= 0 && index < cards ? (int)index : -1;
    for (int card = 0; card < cards; card++)
        if (*word && strncmp(box[card], word, strlen(word)) == 0) return card;
    return -1;
}

int cuInit(unsigned flags) {
    char list[4096], *word, *rest = list;
    const char *fault = getenv("FAKE_CUDA_INIT"), *all = getenv("FAKE_CUDA");
    const char *narrow = getenv("CUDA_VISIBLE_DEVICES");
    (void)flags;
    if (fault) return atoi(fault);
    cards = shown = 0;
    snprintf(list, sizeof list, "%s", all ? all : "");
    while ((word = strsep(&rest, ",")) && *word && cards < MAX)
        snprintf(box[cards++], sizeof box[0], "%s", word);
    if (!narrow) {
        for (; shown < cards; shown++) visible[shown] = shown;
    } else {
        rest = list;
        snprintf(list, sizeof list, "%s", narrow);
        while ((word = strsep(&rest, ",")) && shown < MAX) {
            int card = find(word);
            if (card < 0) break;
            visible[shown++] = card;
        }
    }
    return shown ? 0 : 100;
}

int cuDeviceGetCount(int *count) {
    if (shown < 0) return 3;
    *count = shown;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    if (ordinal < 0 || ordinal >= shown) return 101;
    *device = visible[ordinal];
    return 0;
}

static int uuid_of(CUuuid *uuid, int device) {
    const char *text = box[device] + 4; /* behind GPU- or MIG- */
    for (int place = 0; place < 16; place++) {
        if (*text == '-') text++;
        if (sscanf(text, "%2hhx", &uuid->bytes[place]) != 1) return 1;
        text += 2;
    }
    return 0;
}

int cuDeviceGetUuid(CUuuid *uuid, int device) { return uuid_of(uuid, device); }

#ifndef OLD
int cuDeviceGetUuid_v2(CUuuid *uuid, int device) { return uuid_of(uuid, device); }
#endif

int cuGetErrorName(int code, const char **name) {
    *name = code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : NULL;
    return 0;
}
