/* sequences.h: how scans are cut. */
#ifndef SNUG_DEVICE_CUDA_DECLARED_SEQUENCES_H
#define SNUG_DEVICE_CUDA_DECLARED_SEQUENCES_H

enum { SCAN_MOST_STATES = 64 }; /* that a thread walks with */

#endif
