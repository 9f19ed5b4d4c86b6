/* declared.h: what the CUDA kernels declare to the planner: which calls each declines, and the
 * workspace it wants. Plain C in every build, so that a GPU that is not here can be planned for.
 *
 *     declared/   lists, declines(), workspace(), how calls are cut     C, no CUDA, no driver
 *     products/ attention/ kernels/                                     what runs them
 *
 * The answers depend on shapes and on the GPU's sizes (gpu_model.h) alone; where a library is
 * asked, that is through gpu_answers.
 */
#ifndef SNUG_DEVICE_CUDA_DECLARED_DECLARED_H
#define SNUG_DEVICE_CUDA_DECLARED_DECLARED_H

#include "device/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef const char *kernel_declines(const struct op_call *c, const struct kernel_env *env);
typedef int64_t kernel_workspace(const struct op_call *c, const struct kernel_env *env);

/* For kernels that take f32, bf16 and f16 but not f64. */
kernel_declines cuda_declines_f64;
/* For kernels that want every float tensor present to be bf16, or every one f16, apart from f32
 * statistics and parameters. */
kernel_declines cuda_declines_unless_half;

/* elementwise.c */
kernel_declines cuda_fill_declines, cuda_cast_declines, cuda_transpose_declines,
    cuda_embedding_grad_declines, cuda_rotary_declines, cuda_rotary_vectors_declines;
kernel_workspace cuda_gelu_bias_grad_workspace, cuda_embedding_grad_workspace,
    cuda_ternary_workspace;

/* sums.c */
kernel_declines cuda_sum_boxes_declines;
kernel_workspace cuda_sum_boxes_workspace, cuda_sum_rows_workspace, cuda_sum_squares_workspace,
    cuda_product_squares_workspace, cuda_clip_scale_workspace, cuda_adafactor_workspace;

/* norms.c */
kernel_workspace cuda_layer_norm_grad_workspace, cuda_rms_norm_grad_workspace,
    cuda_head_norm_grad_workspace;

/* product.c, head_loss.c */
kernel_declines cuda_linear_declines, cuda_linear_grad_input_declines,
    cuda_linear_grad_weight_declines, cuda_linear_plain_declines,
    cuda_linear_grad_weight_outer_declines, cuda_linear_grad_input_plain_declines,
    cuda_linear_grad_weight_plain_declines, cuda_head_loss_declines, cuda_head_loss_plain_declines,
    cuda_head_loss_grad_declines, cuda_head_loss_grad_plain_declines;
kernel_workspace cuda_linear_workspace, cuda_linear_grad_input_workspace,
    cuda_linear_grad_weight_workspace, cuda_head_loss_workspace, cuda_head_loss_plain_workspace,
    cuda_head_loss_grad_workspace, cuda_head_loss_grad_plain_workspace;

/* experts.c */
kernel_declines cuda_route_declines, cuda_grouped_warpgroups_declines, cuda_grouped_declines,
    cuda_grouped_plain_declines, cuda_group_sum_rows_declines;
kernel_workspace cuda_route_workspace, cuda_router_grad_workspace, cuda_square_lse_workspace;

/* sequences.c */
kernel_declines cuda_scan_declines;
kernel_workspace cuda_edges_workspace, cuda_scan_grad_workspace;

/* attention.c */
kernel_declines cuda_attention_cudnn_declines, cuda_attention_tensor_cores_declines,
    cuda_attention_tiles_declines, cuda_attention_plain_declines, cuda_attention_cached_declines,
    cuda_cross_attention_tiles_declines, cuda_cross_attention_declines;
kernel_workspace cuda_attention_cudnn_workspace, cuda_attention_grad_workspace,
    cuda_cross_attention_grad_workspace;

/* channel_norm.c */
kernel_workspace cuda_channel_norm_workspace, cuda_channel_norm_grad_workspace;
kernel_workspace cuda_activated_grad_workspace;

/* convolution.c */
kernel_declines cuda_conv_few_declines;
kernel_declines cuda_conv_cudnn_declines;
kernel_workspace cuda_conv_cudnn_workspace, cuda_conv_plain_workspace;

#ifdef __cplusplus
}
#endif
#endif
