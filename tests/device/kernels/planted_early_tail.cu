#define TUTTI_KERNELS planted_early_tail
#define TUTTI_PLANT TUTTI_PLANT_EARLY_TAIL
#include "device/kernels/planted.cuh"

TUTTI_PLANTED_KERNEL(plantedEarlyTail, simple)
