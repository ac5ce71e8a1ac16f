# Random programs for a few seconds each (`make stress` runs them longer), many messages (`make
# test-messages` sends more), the memory that they take, and the cost of idle ranks.
foreach(name IN ITEMS random_programs messages shared_memory idle)
  nexar_program(stress ${name} stress/${name}.c)
  target_link_libraries(stress.${name} PRIVATE nexar::nexar Threads::Threads)
endforeach()

nexar_test(stress random_programs stress.random_programs 5)
foreach(n IN ITEMS 2 3 4 6)
  nexar_test(stress random_programs.${n}
    nexar::run -n ${n} $<TARGET_FILE:stress.random_programs> 4 ${n})
  set_tests_properties(stress.random_programs.${n} PROPERTIES PROCESSORS ${n})
endforeach()

# Without shared memory, and with shared memory between some of the ranks.
nexar_test(quic random_programs.3
  nexar::run -n 3 $<TARGET_FILE:stress.random_programs> 4 13)
set_tests_properties(quic.random_programs.3 PROPERTIES
  PROCESSORS 3 ENVIRONMENT NEXAR_SHM_DISABLE=1)
nexar_test(mixed random_programs.4 nexar::run -n 4
  ${CMAKE_CURRENT_SOURCE_DIR}/process/two_hosts.sh $<TARGET_FILE:stress.random_programs> 4 14)
set_tests_properties(mixed.random_programs.4 PROPERTIES PROCESSORS 4)

nexar_test(stress messages stress.messages)
foreach(n IN ITEMS 2 3 4)
  nexar_process_test(messages ${n} stress.messages)
endforeach()

nexar_test(process shared_memory.8 nexar::run -n 8 $<TARGET_FILE:stress.shared_memory>)
set_tests_properties(process.shared_memory.8 PROPERTIES PROCESSORS 8)

nexar_process_test(idle 8 stress.idle)
