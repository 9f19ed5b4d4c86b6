/* adapted_norm.h: the attributes of adapted_norm, by position, for its kernels. */
#ifndef SNUG_OPS_ADAPTED_NORM_H
#define SNUG_OPS_ADAPTED_NORM_H

enum { ADAPTED_NORM_FIRST, ADAPTED_NORM_SCALE };

#endif
