//! Deadlines of a running batch, and log reports of the ranks that it waits for.
//!
//! Leaves the waiting to `batch`. Invariant: an operation that is late fails its communicator, and
//! the other operations of the batch continue.

use std::cell::OnceCell;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

use super::ticket::Ticket;

/// Longer than any operation may take.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Most operations of a batch in one report.
const MOST_REPORTED: usize = 8;

pub struct Watch<'a> {
    tickets: &'a [Ticket],
    /// One for each ticket, set when it has completed or failed.
    results: &'a [OnceCell<Result<()>>],
    /// Set when the clock was first read: an operation that completes in its first poll reads none.
    next_report: Option<Instant>,
}

/// How often it checks whether an operation that waits behind others has started.
const POLL: Duration = Duration::from_secs(1);

impl<'a> Watch<'a> {
    pub fn new(tickets: &'a [Ticket], results: &'a [OnceCell<Result<()>>]) -> Self {
        Self { tickets, results, next_report: None }
    }

    /// Starts the deadlines of operations that wait for no stream batch. Returns the time of the
    /// first report.
    fn begin(&self, now: Instant) -> Instant {
        let at_once = self.tickets.iter().filter(|ticket| !ticket.waits_for_streams());
        at_once.for_each(|ticket| ticket.start.set(Some(now)));
        now + self.interval()
    }

    /// Fails operations that are late, and reports slow ones. Returns when to call it again; `None`
    /// if every operation has a result.
    pub fn next(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut next_report = self.next_report.unwrap_or_else(|| self.begin(now));
        let mut next: Option<Instant> = None;
        for (ticket, result) in self.without_result() {
            let deadline =
                ticket.start.get().map(|start| start + ticket.communicator.config.op_timeout);
            let own = match deadline {
                // The work of a split after its completion has a deadline of its own.
                _ if ticket.is_completed() => now + POLL,
                None => now + POLL,
                Some(deadline) if deadline <= now => {
                    let late = ticket.fail(ticket.communicator.timeout(ticket.doing));
                    let _ = result.set(Err(late));
                    continue;
                }
                Some(deadline) => deadline,
            };
            next = Some(next.map_or(own, |next| next.min(own)));
        }
        if next_report <= now {
            let waiting = self.without_result().filter(|(ticket, _)| !ticket.is_completed());
            for (ticket, _) in waiting.take(MOST_REPORTED) {
                ticket.communicator.report_stragglers(ticket.doing);
            }
            next_report = now + self.interval();
        }
        self.next_report = Some(next_report);
        next.map(|next| next.min(next_report))
    }

    fn interval(&self) -> Duration {
        let intervals =
            self.tickets.iter().map(|ticket| ticket.communicator.config.straggler_interval);
        intervals.min().unwrap_or(A_YEAR)
    }

    /// Fails every operation that has no result.
    pub fn fail_all(&self, cause: impl Fn() -> Error) {
        for (ticket, result) in self.without_result() {
            let _ = result.set(Err(ticket.fail(cause())));
        }
    }

    fn without_result(
        &self,
    ) -> impl Iterator<Item = (&'a Ticket, &'a OnceCell<Result<()>>)> + use<'a> {
        let all = self.tickets.iter().zip(self.results);
        all.filter(|(_, result)| result.get().is_none())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};

    use tracing::field::{Field, Visit};
    use tracing::{Event, Metadata, Subscriber, span};

    use super::*;
    use crate::comm::create_in_process;
    use crate::comm::run::{HostRequest, run_batch};
    use crate::config::Config;
    use crate::op::Op;

    /// Sends the texts of warnings to a channel.
    struct Listener(Sender<String>);

    impl Subscriber for Listener {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == tracing::Level::WARN
        }
        fn event(&self, event: &Event<'_>) {
            struct Text(String);
            impl Visit for Text {
                fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                    if field.name() == "message" {
                        self.0 = format!("{value:?}");
                    }
                }
            }
            let mut text = Text(String::new());
            event.record(&mut text);
            let _ = self.0.send(text.0);
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn the_log_names_the_rank_that_is_waited_for_and_its_last_call() {
        let config = Config {
            straggler_interval: Duration::from_millis(5),
            op_timeout: Duration::from_secs(60),
            name: Some("7".to_owned()),
            ..Config::default()
        };
        let ranks = create_in_process(2, &config).unwrap();
        let (sender, reports) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tracing::subscriber::with_default(Listener(sender), || {
                    ranks[0].run(Op::barrier()).unwrap();
                    ranks[0].run(Op::barrier()).unwrap();
                });
            });
            for text in [
                "barrier #0 on communicator 7 waits for rank 1, which has made no call",
                "barrier #1 on communicator 7 waits for rank 1, which is at #0",
            ] {
                let about_this = reports.iter().find(|report| report.starts_with(&text[..10]));
                assert_eq!(about_this.as_deref(), Some(text));
                ranks[1].run(Op::barrier()).unwrap();
            }
        });
    }

    #[test]
    fn each_operation_of_a_batch_has_its_own_deadline() {
        let patient = create_in_process(2, &Config::default()).unwrap();
        let op_timeout = Duration::from_millis(20);
        let hasty = create_in_process(2, &Config { op_timeout, ..Config::default() }).unwrap();
        let requests = [&patient[0], &hasty[0]].map(|communicator| HostRequest {
            communicator: Arc::clone(communicator),
            stream: None,
            is_for_caller: true,
            work: Op::barrier().into(),
        });
        std::thread::scope(|scope| {
            let running = scope.spawn(|| run_batch(requests.into()));
            // The hasty operation fails while the patient one still waits.
            while hasty[1].fault().is_none() {
                std::thread::yield_now();
            }
            assert!(!running.is_finished());
            patient[1].run(Op::barrier()).unwrap();
            let error = running.join().unwrap().unwrap_err();
            assert_eq!(error.code(), crate::error::Code::Timeout, "{error}");
        });
    }
}
