#define TUTTI_KERNELS planted_no_barrier
#define TUTTI_PLANT TUTTI_PLANT_NO_BARRIER
#include "device/kernels/planted.cuh"

TUTTI_PLANTED_KERNEL(plantedNoBarrier, simple)
