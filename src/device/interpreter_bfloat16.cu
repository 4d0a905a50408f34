#include "device/interpreter.cuh"

TUTTI_INTERPRETER(Bfloat16)
