#define TUTTI_KERNELS planted_behind_end
#define TUTTI_PLANT TUTTI_PLANT_BEHIND_END
#include "device/kernels/planted.cuh"

TUTTI_PLANTED_KERNEL(plantedBehindEnd, simple)
