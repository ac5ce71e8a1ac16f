// The same program as C++: the header must give its functions C linkage.
#include "twice.c"
