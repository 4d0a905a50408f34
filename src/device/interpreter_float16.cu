#include "device/interpreter.cuh"

TUTTI_INTERPRETER(Float16)
