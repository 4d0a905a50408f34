#include "device/interpreter.cuh"

TUTTI_INTERPRETER(Int64)
