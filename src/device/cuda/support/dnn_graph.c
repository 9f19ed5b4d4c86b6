#include "device/cuda/support/dnn_graph.h"

#include <stddef.h>
#include <string.h>

void dnn_fail(struct dnn_graph *g, cudnnStatus_t status, const char *step)
{
    if (g->failed == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) {
        g->failed = status;
        g->step = step;
    }
}

cudnnBackendDescriptor_t dnn_make(struct dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (g->failed != CUDNN_STATUS_SUCCESS)
        return NULL;
    if (g->n_all == DNN_MAX_DESCRIPTORS) {
        dnn_fail(g, CUDNN_STATUS_INTERNAL_ERROR, "too many descriptors");
        return NULL;
    }
    dnn_fail(g, cudnnBackendCreateDescriptor(type, &d), "create descriptor");
    if (d)
        g->all[g->n_all++] = d;
    return d;
}

void dnn_set(struct dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (g->failed == CUDNN_STATUS_SUCCESS)
        dnn_fail(g, cudnnBackendSetAttribute(d, name, type, n, values), "set attribute");
}

void dnn_set_descriptor(struct dnn_graph *g, cudnnBackendDescriptor_t d,
                        cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    dnn_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void dnn_finalize(struct dnn_graph *g, cudnnBackendDescriptor_t d, const char *step)
{
    if (g->failed == CUDNN_STATUS_SUCCESS)
        dnn_fail(g, cudnnBackendFinalize(d), step);
}

static void add_op(struct dnn_graph *g, cudnnBackendDescriptor_t op, const char *step)
{
    dnn_finalize(g, op, step);
    if (g->n_ops == DNN_MAX_OPS)
        dnn_fail(g, CUDNN_STATUS_INTERNAL_ERROR, "too many operations");
    else
        g->ops[g->n_ops++] = op;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static struct dnn_tensor tensor(struct dnn_graph *g, int slot, bool by_value, cudnnDataType_t type,
                                int rank, const int64_t *dim, const int64_t *stride)
{
    struct dnn_tensor t = {.type = type, .rank = rank};
    int64_t uid = ++g->n_tensors, alignment = 16;
    bool is_virtual = slot == DNN_VIRTUAL;
    memcpy(t.dim, dim, (size_t)rank * sizeof *dim);
    memcpy(t.stride, stride, (size_t)rank * sizeof *stride);
    t.descriptor = dnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    dnn_set(g, t.descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    dnn_set(g, t.descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    dnn_set(g, t.descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dim);
    dnn_set(g, t.descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, stride);
    dnn_set(g, t.descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    dnn_set(g, t.descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    dnn_set(g, t.descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    dnn_finalize(g, t.descriptor, "tensor");
    if (!is_virtual && g->n_data == DNN_MAX_DATA) {
        dnn_fail(g, CUDNN_STATUS_INTERNAL_ERROR, "too many tensors");
    } else if (!is_virtual) {
        g->uid[g->n_data] = uid;
        g->slot[g->n_data++] = slot;
    }
    return t;
}

struct dnn_tensor dnn_tensor_new(struct dnn_graph *g, int slot, cudnnDataType_t type, int rank,
                                 const int64_t *dim, const int64_t *stride)
{
    return tensor(g, slot, false, type, rank, dim, stride);
}

struct dnn_tensor dnn_scalar(struct dnn_graph *g, int slot, cudnnDataType_t type)
{
    const int64_t one[4] = {1, 1, 1, 1};
    return tensor(g, slot, true, type, 4, one, one);
}

struct dnn_tensor dnn_like(struct dnn_graph *g, const struct dnn_tensor *t, cudnnDataType_t type)
{
    return tensor(g, DNN_VIRTUAL, false, type, t->rank, t->dim, t->stride);
}

void dnn_exchange(int64_t pair[4])
{
    int64_t third = pair[2];
    pair[2] = pair[3];
    pair[3] = third;
}

/* ---- operations ------------------------------------------------------------------------------ */

void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                   const struct dnn_tensor *x, const struct dnn_tensor *b,
                   const struct dnn_tensor *t, const struct dnn_tensor *y, int64_t axis)
{
    float one = 1.0f;
    cudnnBackendDescriptor_t d = dnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    dnn_set(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    dnn_set(g, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        dnn_set(g, d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    dnn_finalize(g, d, "elementwise step");
    cudnnBackendDescriptor_t op = dnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x->descriptor);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y->descriptor);
    if (b)
        dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->descriptor);
    if (t)
        dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t->descriptor);
    dnn_set(g, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one);
    dnn_set(g, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &one);
    add_op(g, op, "elementwise operation");
}

struct dnn_tensor dnn_apply(struct dnn_graph *g, cudnnPointwiseMode_t mode,
                            const struct dnn_tensor *x, const struct dnn_tensor *b)
{
    struct dnn_tensor y = dnn_like(g, x, CUDNN_DATA_FLOAT);
    dnn_pointwise(g, mode, CUDNN_DATA_FLOAT, x, b, NULL, &y, 0);
    return y;
}

void dnn_matmul(struct dnn_graph *g, const struct dnn_tensor *a, const struct dnn_tensor *b,
                const struct dnn_tensor *c)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t d = dnn_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    dnn_set(g, d, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    dnn_finalize(g, d, "product");
    cudnnBackendDescriptor_t op = dnn_make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a->descriptor);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b->descriptor);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c->descriptor);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, d);
    add_op(g, op, "product operation");
}

void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t operator, const struct dnn_tensor * x,
                const struct dnn_tensor *y)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t d = dnn_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    dnn_set(g, d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operator);
    dnn_set(g, d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    dnn_finalize(g, d, "reduction");
    cudnnBackendDescriptor_t op = dnn_make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x->descriptor);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y->descriptor);
    add_op(g, op, "reduction operation");
}

void dnn_view(struct dnn_graph *g, const struct dnn_tensor *x, const struct dnn_tensor *y)
{
    cudnnBackendDescriptor_t op = dnn_make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x->descriptor);
    dnn_set_descriptor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y->descriptor);
    add_op(g, op, "view operation");
}

static cudnnBackendDescriptor_t window_descriptor(struct dnn_graph *g, const struct dnn_window *w)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t n = w->n_axes;
    cudnnBackendDescriptor_t d = dnn_make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, w->dilation);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, w->stride);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n, w->pad_before);
    dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, w->pad_after);
    dnn_finalize(g, d, "window");
    return d;
}

/* The three operations differ in the names of their attributes alone. */
struct convolution_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
};

void dnn_convolve(struct dnn_graph *g, const struct dnn_convolution *c)
{
    static const struct convolution_names names[] = {
        [DNN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        [DNN_GRAD_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        [DNN_GRAD_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    };
    const struct convolution_names *name = &names[c->direction];
    float alpha = 1.0f, beta = c->add ? 1.0f : 0.0f;
    cudnnBackendDescriptor_t window = window_descriptor(g, &c->window);
    cudnnBackendDescriptor_t op = dnn_make(g, name->type);
    dnn_set_descriptor(g, op, name->window, window);
    dnn_set_descriptor(g, op, name->x, c->x->descriptor);
    dnn_set_descriptor(g, op, name->w, c->w->descriptor);
    dnn_set_descriptor(g, op, name->y, c->y->descriptor);
    dnn_set(g, op, name->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    dnn_set(g, op, name->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    add_op(g, op, "convolution operation");
}
