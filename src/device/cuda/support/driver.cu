#include "device/cuda/support/driver.h"

#include <cuda_runtime_api.h>
#include <string.h>

bool cuda_driver_function(const char *name, void *function_pointer)
{
    void *symbol = NULL;
    enum cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t e =
        cudaGetDriverEntryPointByVersion(name, &symbol, 12050, cudaEnableDefault, &found);
#else
    cudaError_t e = cudaGetDriverEntryPoint(name, &symbol, cudaEnableDefault, &found);
#endif
    if (e != cudaSuccess || found != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        symbol = NULL;
    }
    memcpy(function_pointer, &symbol, sizeof(symbol));
    return symbol != NULL;
}
