#define TUTTI_KERNELS planted_torn_line
#define TUTTI_PLANT TUTTI_PLANT_TORN_LINE
#include "device/kernels/planted.cuh"

TUTTI_PLANTED_KERNEL(plantedTornLine, ll128)
