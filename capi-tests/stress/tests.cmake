# Programs drawn at random, for a few seconds each: `make stress` takes its time. And what nothing
# costs.
foreach(name IN ITEMS random_programs idle)
  nexar_program(stress ${name} stress/${name}.c)
  target_link_libraries(stress.${name} PRIVATE nexar::nexar Threads::Threads)
endforeach()

nexar_test(stress random_programs stress.random_programs 5)
foreach(n IN ITEMS 2 3 4 6)
  nexar_test(stress random_programs.${n}
    nexar::run -n ${n} --timeout 55 $<TARGET_FILE:stress.random_programs> 6 ${n})
  set_tests_properties(stress.random_programs.${n} PROPERTIES PROCESSORS ${n})
endforeach()

nexar_process_test(idle 8 stress.idle)
