#include "device/interpreter.cuh"

TUTTI_INTERPRETER(Float8e5m2)
