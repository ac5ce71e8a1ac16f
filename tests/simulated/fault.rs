//! Lost ranks, cut links and wrong calls: every surviving rank gets an error, and none hangs.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use nexar::buffer::Buffers;
use nexar::collective::select::Row;
use nexar::comm::{ColorKey, Communicator, SplitRequest, create_over, split};
use nexar::config::Config;
use nexar::dtype::DataType;
use nexar::error::{Code, Error};
use nexar::op::{Op, RedOp};
use nexar::rank::Rank;
use nexar::transport::injection::{Faults, FaultyWorld};
use nexar::transport::{CallHistory, LANES};

use crate::case::{Case, Collective, known, maps};
use crate::collective::{algorithms, cases};
use crate::oracle::oracle;
use crate::world::Placement::OutOfPlace;
use crate::world::{execute, quiet, run, world_for};

/// A call on enough elements that no chunk is empty.
fn case(collective: Collective, size: usize) -> Case {
    let reducer = known(DataType::Int32, RedOp::Sum).unwrap();
    Case { collective, count: 50, reducer, root: 0, size }
}

fn barrier(size: usize) -> Case {
    case(Collective::Barrier, size)
}

#[test]
fn a_kill_of_any_rank_at_any_step_is_an_error_on_every_survivor() {
    for (row, collective) in algorithms() {
        for size in 2..=9 {
            let case = case(collective, size);
            if cases(row, collective, case.count, &case.reducer, size).is_empty() {
                continue;
            }
            for victim in 0..size {
                let mut kills = 0;
                while kill(row, &case, victim, kills) {
                    kills += 1;
                    assert!(kills < 100, "{row:?}: the victim never gets through the call");
                }
                assert!(kills > 0, "{row:?}, {case:?}: rank {victim} has no step");
            }
        }
    }
}

/// Enough elements that a rank publishes them in place, in several epochs.
const IN_PLACE_COUNT: usize = 40_000;

#[test]
fn a_kill_while_others_look_at_its_buffer_is_an_error_on_every_survivor() {
    let on_one_host = |row: &Row| ["flat", "flat_v", "paired", "slices"].contains(&row.name);
    for (row, collective) in algorithms().into_iter().filter(|(row, _)| on_one_host(row)) {
        for victim in 0..3 {
            let case = Case { count: IN_PLACE_COUNT, ..case(collective, 3) };
            let kills = (0..100).find(|at| !kill(row, &case, victim, *at));
            assert!(kills.is_some_and(|kills| kills > 0), "{row:?}: {kills:?}");
        }
    }
}

#[test]
fn a_call_that_ends_on_a_thread_leaves_nothing_that_others_look_at() {
    for at in 0..60 {
        let world = FaultyWorld::new(3, Faults::kill(Rank(0), at)).unwrap();
        let config = Config { algo: "allreduce:flat".to_owned(), ..Config::default() };
        let ranks = create_over(world.meshes(), &config).unwrap();
        let case = Case { count: IN_PLACE_COUNT, ..case(Collective::AllReduce, 3) };
        std::thread::scope(|scope| {
            for (rank, communicator) in ranks.iter().enumerate() {
                let case = &case;
                scope.spawn(move || {
                    let (mut input, mut output) =
                        (case.input(rank), vec![0; case.output_bytes(rank)]);
                    let buffers = Buffers::Apart { input: &input, output: &mut output };
                    let ended = communicator.run(case.op(rank, buffers));
                    // A rank that still viewed the input would read this.
                    input.fill(0xff);
                    if ended.is_ok() {
                        assert!(Some(output) == oracle(case, "flat", rank), "killed at {at}");
                    }
                });
            }
        });
    }
}

/// Kills `victim` at step `at` of the call and checks the survivors. False if no such step exists.
fn kill(row: &Row, case: &Case, victim: usize, at: u64) -> bool {
    let size = case.size;
    let algo = format!("{}:{}", row.collective, row.name);
    let world = world_for(row, size, Faults::kill(Rank(victim), at));
    let mine = case.clone();
    let results = run(&world, &algo, move |communicator| {
        let case = mine.clone();
        async move {
            let first = execute(&communicator, &case, OutOfPlace).await;
            let dead = first.is_err() && communicator.me().rank == Rank(victim);
            // A rank that completed the call without the victim needs it in the next call.
            let second = if dead {
                Ok(Vec::new())
            } else {
                execute(&communicator, &barrier(size), OutOfPlace).await
            };
            (first, second)
        }
    });
    if results[victim].0.is_ok() {
        return false;
    }
    let context = |rank| format!("{algo}, {case:?}: rank {victim} killed at {at}, rank {rank}");
    for (rank, (first, second)) in results.iter().enumerate().filter(|(rank, _)| *rank != victim) {
        match first {
            Ok(got) => {
                assert!(Some(got) == oracle(case, row.name, rank).as_ref(), "{}", context(rank))
            }
            Err(error) => assert_names(error, victim, &context(rank)),
        }
        assert_names(second.as_ref().expect_err(&context(rank)), victim, &context(rank));
    }
    true
}

fn assert_names(error: &Error, victim: usize, context: &str) {
    assert_eq!(error.code(), Code::RemoteError, "{context}: {error}");
    assert!(
        error.to_string().ends_with(&format!("rank {victim} was killed")),
        "{context}: {error}"
    );
}

#[test]
fn a_cut_link_is_an_error_with_the_same_text_on_every_rank() {
    for size in 2..=6 {
        let world = quiet(size);
        world.cut(Rank(0), Rank(1));
        let results = run(&world, "allreduce:ring", move |communicator| async move {
            let case = case(Collective::AllReduce, size);
            execute(&communicator, &case, OutOfPlace).await.unwrap_err().to_string()
        });
        assert!(results[0].contains("cannot be reached"), "{}", results[0]);
        assert!(results.iter().all(|text| *text == results[0]), "{results:?}");
    }
}

#[test]
fn ranks_that_wait_for_a_rank_that_has_left_name_it() {
    let results = run(&quiet(3), "", |communicator| async move {
        match communicator.me().rank {
            Rank(2) => None,
            _ => execute(&communicator, &barrier(3), OutOfPlace).await.err(),
        }
    });
    for error in results[..2].iter().flatten() {
        assert_eq!(error.code(), Code::RemoteError);
        assert!(error.to_string().ends_with("rank 2 has left the communicator"), "{error}");
    }
    assert!(results[0].is_some() && results[1].is_some());
}

#[test]
fn what_a_rank_has_sent_arrives_after_it_left() {
    let broadcast = || case(Collective::Broadcast, 2);
    let results = run(&quiet(2), "", move |communicator| async move {
        if communicator.me().rank == Rank(1) {
            // The root has completed the call and left before this rank begins.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        execute(&communicator, &broadcast(), OutOfPlace).await
    });
    assert_eq!(results[1].as_ref().ok(), oracle(&broadcast(), "binomial", 1).as_ref());
}

#[test]
fn a_call_that_differs_in_anything_is_a_mismatch_with_both_calls_on_every_rank() {
    let reducer = |dtype, redop| known(dtype, redop).unwrap();
    let right = |size| Case { count: 8, ..case(Collective::Reduce, size) };
    let wrong = |size| {
        let (right, uint32) = (right(size), reducer(DataType::Uint32, RedOp::Sum));
        [
            Case { collective: Collective::AllReduce, ..right.clone() },
            Case { collective: Collective::Scan, ..right.clone() },
            Case { collective: Collective::AllGatherV, ..right.clone() },
            Case { collective: Collective::ReduceScatterV, ..right.clone() },
            Case { collective: Collective::AllReduceBucketed, ..right.clone() },
            barrier(size),
            Case { count: 9, ..right.clone() },
            Case { count: 0, ..right.clone() },
            Case { reducer: uint32, ..right.clone() },
            Case { reducer: reducer(DataType::Int32, RedOp::Max), ..right.clone() },
            Case { reducer: maps(), ..right.clone() },
            Case { root: 1, ..right.clone() },
        ]
    };
    for size in 2..=5 {
        for wrong in wrong(size) {
            for odd in 0..size {
                let (right, mine) = (right(size), wrong.clone());
                let results = run(&quiet(size), "", move |communicator| {
                    let is_odd = communicator.me().rank == Rank(odd);
                    let case = if is_odd { mine.clone() } else { right.clone() };
                    async move {
                        let first = execute(&communicator, &case, OutOfPlace).await;
                        // A rank that returned before the mismatch was found reports it here.
                        let second = execute(&communicator, &barrier(size), OutOfPlace).await;
                        let second = second.unwrap_err();
                        if let Err(first) = first {
                            assert_eq!(first.to_string(), second.to_string());
                        }
                        assert_eq!(second.code(), Code::InvalidUsage);
                        second.to_string()
                    }
                });
                let text = &results[0];
                assert!(results.iter().all(|other| other == text), "{results:?}");
                assert!(text.contains(&format!("rank {odd} called {}", wrong.call())), "{text}");
                assert!(text.contains(" called Reduce(8 x int32, sum, root 0)"), "{text}");
            }
        }
    }
}

#[test]
fn a_length_that_two_ranks_see_differently_is_a_mismatch_on_every_rank() {
    for collective in [Collective::AllToAllV, Collective::GatherV, Collective::ScatterV] {
        let results = run(&quiet(4), "", move |communicator| async move {
            let odd = communicator.me().rank == Rank(3);
            let case = Case { count: if odd { 51 } else { 50 }, ..case(collective, 4) };
            let first = execute(&communicator, &case, OutOfPlace).await;
            let second = execute(&communicator, &barrier(4), OutOfPlace).await.unwrap_err();
            if let Err(first) = first {
                assert_eq!(first.to_string(), second.to_string());
            }
            second
        });
        for error in &results {
            assert_eq!(error.code(), Code::InvalidUsage, "{collective:?}: {error}");
            let text = error.to_string();
            assert!(text.contains(&format!("{collective:?}(int32")), "{text}");
            assert!(text.contains("which expects"), "{text}");
            assert_eq!(text, results[0].to_string());
        }
    }
}

#[test]
fn every_message_is_checked_where_no_announcement_has_warned() {
    use nexar::collective::select::Selection;
    use nexar::collective::{Exchange, perform};
    let mut meshes = quiet(2).meshes().into_iter();
    let ranks = [meshes.next().unwrap(), meshes.next().unwrap()];
    let one_rank = async |rank: usize| {
        let case = Case { count: rank + 2, ..case(Collective::AllReduce, 2) };
        let lane = nexar::transport::Lane(0);
        let exchange = Exchange::new(&ranks[rank], lane, 0, case.call(), CallHistory::default());
        let mut memory = vec![7; 4 * (rank + 2)];
        let mut op = case.op(rank, Buffers::Shared { both: &mut memory });
        let error = perform(&exchange, &Selection::default(), &mut op).await.unwrap_err();
        assert!(memory.iter().all(|byte| *byte == 7), "a byte of the wrong message landed");
        error.to_string()
    };
    let both = async { tokio::join!(one_rank(0), one_rank(1)) };
    let texts = nexar::parker::block_on(both, Instant::now() + Duration::from_secs(30));
    let texts = texts.expect("a rank hangs");
    assert_eq!(texts.0, texts.1);
    assert!(texts.0.starts_with("ranks disagree on call #0"), "{}", texts.0);
}

#[test]
fn a_panic_inside_an_operation_is_an_internal_error_on_every_rank() {
    // This algorithm copies before it sends, so the other ranks receive nothing from rank 1.
    let algo = "allreduce:one_shot".to_owned();
    let config = Config { op_timeout: Duration::from_secs(30), algo, ..Config::default() };
    let communicators = nexar::comm::create_in_process(3, &config).unwrap();
    let ranks = communicators.into_iter().map(|communicator| {
        std::thread::spawn(move || {
            // Rank 1 breaks the rule that both buffers are equally long: a bug of the calling
            // layer, which must not make the other ranks hang.
            let input = vec![0; if communicator.me().rank == Rank(1) { 4 } else { 8 }];
            let buffers = Buffers::Apart { input: &input, output: &mut [0; 8] };
            let case = Case { count: 2, ..case(Collective::AllReduce, 3) };
            communicator.run(case.op(1, buffers)).unwrap_err()
        })
    });
    let errors: Vec<_> =
        ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().unwrap()).collect();
    for error in errors {
        assert_eq!(error.code(), Code::InternalError, "{error}");
        assert!(
            error.to_string().starts_with("rank 1, AllReduce(2 x int32, sum) #0: a panic"),
            "{error}"
        );
    }
}

#[test]
fn a_failure_does_not_reach_back_to_a_call_whose_messages_are_all_there() {
    let broadcast = || case(Collective::Broadcast, 3);
    for seed in 0..50 {
        // Delayed messages keep rank 1 or 2 inside the first call while the second one fails.
        let world = FaultyWorld::new(3, Faults::delays(seed)).unwrap();
        let results = run(&world, "", move |communicator| async move {
            let first = execute(&communicator, &broadcast(), OutOfPlace).await;
            tokio::task::yield_now().await; // all ranks have begun the first call now
            let wrong = communicator.me().rank == Rank(0);
            let second = case(if wrong { Collective::Barrier } else { Collective::AllReduce }, 3);
            (first, execute(&communicator, &second, OutOfPlace).await.map_err(|error| error.code()))
        });
        for (first, second) in results {
            assert_eq!(first.ok(), oracle(&broadcast(), "binomial", 0));
            assert_eq!(second, Err(Code::InvalidUsage));
        }
    }
}

#[test]
fn an_abort_never_mixes_the_messages_of_two_calls_in_one_lane() {
    // Longer than a queue, so that the root is inside the first call when it aborts, while others
    // are queued behind it in the same lane.
    let broadcast = || Case { count: 3 << 18, ..case(Collective::Broadcast, 2) };
    for moment in 0..40 {
        let results = run(&quiet(2), "", move |communicator| async move {
            if communicator.me().rank == Rank(1) {
                return Some(execute(&communicator, &broadcast(), OutOfPlace).await);
            }
            let behind = (0..2 * LANES).map(|_| {
                let communicator = Arc::clone(&communicator);
                tokio::task::spawn_local(async move {
                    let other = vec![0xbb; 3 << 20];
                    let buffers = Buffers::Apart { input: &other, output: &mut vec![0; 3 << 20] };
                    communicator.run_async(broadcast().op(0, buffers)).await
                })
            });
            let behind: Vec<_> = behind.collect();
            for _ in 0..moment {
                tokio::task::yield_now().await;
            }
            communicator.abort();
            for one in behind {
                let _ = one.await.unwrap();
            }
            None
        });
        if let Some(Ok(got)) = &results[1] {
            assert!(got.iter().all(|byte| *byte == 0xbb), "aborted after {moment} yields");
        }
    }
}

#[test]
fn a_rank_that_completed_a_split_does_not_wait_for_one_that_failed() {
    // Long, so that a timeout can be told from a call that ends by the failure.
    let config = Config { op_timeout: Duration::from_secs(20), ..Config::default() };
    for at in 0..20 {
        let world = FaultyWorld::new(4, Faults::kill(Rank(3), at)).unwrap();
        let ranks = create_over(world.meshes(), &config).unwrap();
        let split_and_meet = |communicator: &Arc<Communicator>| {
            let color = Some(communicator.me().rank.0 as u32 / 2);
            let (communicator, config) = (Arc::clone(communicator), config.clone());
            let color_key = ColorKey { color, key: 0 };
            let request = SplitRequest { communicator, color_key, config: config.clone() };
            let part = split(&[request]).pop().unwrap()?.expect("it has a color");
            part.run(Op::barrier())
        };
        let ended: Vec<_> = std::thread::scope(|scope| {
            let ranks: Vec<_> =
                ranks.iter().map(|rank| scope.spawn(|| split_and_meet(rank))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        for (rank, ended) in ended.iter().enumerate() {
            let code = ended.as_ref().map_or_else(Error::code, |()| Code::Success);
            assert_ne!(code, Code::Timeout, "rank {rank}, rank 3 killed at {at}: {ended:?}");
        }
    }
}

#[test]
fn finalize_waits_for_an_operation_that_runs() {
    let config = Config { op_timeout: Duration::from_secs(30), ..Config::default() };
    let ranks = nexar::comm::create_in_process(2, &config).unwrap();
    let finalized = AtomicBool::new(false);
    let mut running = Box::pin(ranks[0].run_async(Op::barrier()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(running.as_mut().poll(&mut context).is_pending());
    std::thread::scope(|scope| {
        let finalize = scope.spawn(|| {
            ranks[0].finalize().unwrap();
            finalized.store(true, Ordering::Release);
        });
        // A finalize that does not wait would return now.
        (0..1000).for_each(|_| std::thread::yield_now());
        assert!(!finalized.load(Ordering::Acquire), "an operation is still running");
        let peer = scope.spawn(|| ranks[1].run(Op::barrier()).unwrap());
        while running.as_mut().poll(&mut context).is_pending() {
            std::thread::yield_now();
        }
        peer.join().unwrap();
        finalize.join().unwrap();
    });
}
