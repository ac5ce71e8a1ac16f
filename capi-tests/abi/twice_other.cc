#include "twice_other.c"
