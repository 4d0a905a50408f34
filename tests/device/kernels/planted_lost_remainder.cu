#define TUTTI_KERNELS planted_lost_remainder
#define TUTTI_PLANT TUTTI_PLANT_LOST_REMAINDER
#include "device/kernels/planted.cuh"

TUTTI_PLANTED_KERNEL(plantedLostRemainder, simple)
