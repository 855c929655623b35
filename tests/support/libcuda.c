/* A CUDA driver for the tests. FAKE_CUDA_INIT is what cuInit returns; without it, the driver starts
 * unless CUDA_VISIBLE_DEVICES hides all GPUs. */
#include <stdlib.h>

int cuInit(unsigned flags) {
    const char *fault = getenv("FAKE_CUDA_INIT"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    (void)flags;
    if (fault) return atoi(fault);
    return visible && *visible == '-' ? 100 : 0;
}

int cuGetErrorName(int code, const char **name) {
    *name = code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : NULL;
    return *name ? 0 : 1;
}
