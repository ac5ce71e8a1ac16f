# The watchdog that ends a test that hangs: see progress.h.

nexar_program(check watch check/watch.c)
target_link_libraries(check.watch PRIVATE nexar::nexar Threads::Threads)
nexar_unwatched_test(check watch check.watch)
nexar_test(check hanging_rank sh ${CMAKE_CURRENT_SOURCE_DIR}/check/hanging_rank.sh
  $<TARGET_FILE:nexar::run> $<TARGET_FILE:check.watch>)
