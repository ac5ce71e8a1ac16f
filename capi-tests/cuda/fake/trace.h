/* The trace of calls as they begin, and of operations as streams begin and end them. */
#ifndef FAKE_TRACE_H
#define FAKE_TRACE_H

#include "api.h"

/* The names must never be freed. */
void trace_call(const char *function);
void trace_failure(const char *function, CUresult code);
void trace_operation(const char *begin_or_end, int64_t stream, const char *kind, size_t bytes,
                     uint32_t value);
/* Writes the trace to the file of FAKECUDA_TRACE, if it is set. */
void dump_trace_of_environment(void);

#endif
