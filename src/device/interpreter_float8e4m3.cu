#include "device/interpreter.cuh"

TUTTI_INTERPRETER(Float8e4m3)
