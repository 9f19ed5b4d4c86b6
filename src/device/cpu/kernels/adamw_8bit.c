/* adamw_8bit.c: AdamW with states in 8-bit codes, on the parameter itself or on its master,
 * or by a gradient that is a product. */
#include <stddef.h>

#include "device/cpu/kernels/adamw_rule.h"
#include "device/cpu/kernels/update_call.h"

const struct kernel cpu_kernels_adamw_8bit[] = {
    {"blocked", cpu_declines_f64, update_maps_bytes, adamw_blocked},
    {"reference", NULL, update_maps_bytes, adamw_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_adamw_8bit_master[] = {
    {"blocked", cpu_declines_f64, update_maps_bytes, adamw_blocked},
    {"reference", NULL, update_maps_bytes, adamw_reference},
    KERNEL_END,
};

const struct kernel cpu_kernels_adamw_8bit_product[] = {
    {"blocked", cpu_declines_f64, update_maps_bytes, adamw_blocked},
    {"reference", NULL, update_maps_bytes, adamw_reference},
    KERNEL_END,
};
