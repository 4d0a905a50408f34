#include "device/interpreter.cuh"

TUTTI_INTERPRETER(Uint8)
