//! The posted receives and the unexpected messages of one rank of one communicator.
//!
//! Pure: sends nothing, waits for nothing, reads no clock. A receive takes the first message to
//! arrive that it names by source and tag. A message goes to the first posted receive that names it
//! and has the capacity for it. A receive without the capacity completes with an error, and the
//! message keeps its place. Invariants:
//! - messages of one sender arrive here in the order in which it sent them, so no message overtakes
//!   another that the same receive names, whatever their tags and sizes;
//! - no posted receive names an unexpected message: they would have been matched.

use std::collections::VecDeque;

use crate::message::{Envelope, RecvCall, Wanted};
use crate::rank::Rank;

/// The id of a posted receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Posted(u64);

/// A message whose envelope has arrived. `rest` is the state that the protocol keeps for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival<M> {
    pub source: Rank,
    pub envelope: Envelope,
    pub rest: M,
}

pub struct Matching<M> {
    /// In the order of posting.
    posted: VecDeque<(Posted, RecvCall)>,
    /// Messages that no receive has taken, in the order of arrival.
    unexpected: VecDeque<Arrival<M>>,
    next: u64,
}

impl<M> Default for Matching<M> {
    fn default() -> Self {
        Self { posted: VecDeque::new(), unexpected: VecDeque::new(), next: 0 }
    }
}

/// The result of posting a receive.
#[derive(Debug, PartialEq, Eq)]
pub enum Post<M> {
    Matched(Arrival<M>),
    /// The first message that the receive names exceeds its capacity, and stays.
    TooLong(Rank, Envelope),
    Waits(Posted),
}

/// What a receive that is not posted would take.
pub enum Next<'a, M> {
    Unexpected(&'a Arrival<M>),
    /// The next message to arrive that it names.
    Arriving,
    /// Unknown, because other receives are posted.
    Posted,
}

/// The result of the arrival of a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Matched<M> {
    /// Receives whose capacity it exceeds, in the order of posting. They are not posted any more.
    pub exceeded: Vec<Posted>,
    /// The receive that takes it. `None`: it is unexpected and kept.
    pub by: Option<(Posted, Arrival<M>)>,
}

impl<M> Matching<M> {
    /// Takes the first unexpected message that the receive names; else posts the receive.
    pub fn post(&mut self, call: RecvCall) -> Post<M> {
        if let Some(at) = self.first(&call.wanted) {
            let Arrival { source, envelope, .. } = self.unexpected[at];
            if call.is_exceeded_by(&envelope) {
                return Post::TooLong(source, envelope);
            }
            if let Some(arrival) = self.unexpected.remove(at) {
                return Post::Matched(arrival);
            }
        }
        let posted = Posted(self.next);
        self.next += 1;
        self.posted.push_back((posted, call));
        Post::Waits(posted)
    }

    /// Gives a message to the first posted receive that names it and has the capacity for it.
    /// Withdraws those before it that name it.
    pub fn arrive(&mut self, arrival: Arrival<M>) -> Matched<M> {
        let Arrival { source, envelope, .. } = arrival;
        let mut exceeded = Vec::new();
        let names = |(_, call): &(Posted, RecvCall)| call.wanted.takes(source, envelope.tag);
        while let Some(at) = self.posted.iter().position(names)
            && let Some((posted, call)) = self.posted.remove(at)
        {
            if !call.is_exceeded_by(&envelope) {
                return Matched { exceeded, by: Some((posted, arrival)) };
            }
            exceeded.push(posted);
        }
        self.unexpected.push_back(arrival);
        Matched { exceeded, by: None }
    }

    /// What a receive would take that was posted now.
    #[inline]
    pub fn next(&self, wanted: &Wanted) -> Next<'_, M> {
        if !self.posted.is_empty() {
            return Next::Posted;
        }
        self.look(wanted).map_or(Next::Arriving, Next::Unexpected)
    }

    /// Takes the unexpected message that `next` has found.
    pub fn take_next(&mut self, wanted: &Wanted) -> Option<Arrival<M>> {
        self.first(wanted).and_then(|at| self.unexpected.remove(at))
    }

    /// The message that a receive posted now would take, if it has the capacity.
    pub fn look(&self, wanted: &Wanted) -> Option<&Arrival<M>> {
        self.first(wanted).map(|at| &self.unexpected[at])
    }

    /// Withdraws a posted receive. False if it has completed.
    pub fn cancel(&mut self, posted: Posted) -> bool {
        let before = self.posted.len();
        self.posted.retain(|(one, _)| *one != posted);
        self.posted.len() < before
    }

    fn first(&self, wanted: &Wanted) -> Option<usize> {
        let takes = |one: &Arrival<M>| wanted.takes(one.source, one.envelope.tag);
        self.unexpected.iter().position(takes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dtype::DataType;
    use crate::message::{RecvCount, Tag, WantedTag};

    #[derive(Clone, Debug)]
    enum Step {
        Arrive(Rank, Envelope),
        Post(RecvCall),
        Look(Wanted),
        /// Cancels the receive that was posted `.0` posts before the last one.
        Cancel(usize),
    }

    fn tag() -> impl Strategy<Value = Tag> {
        prop_oneof![Just(Tag::None), (0..3_u32).prop_map(Tag::Number)]
    }

    fn dtype() -> impl Strategy<Value = DataType> {
        prop_oneof![4 => Just(DataType::Int8), 1 => Just(DataType::Int16)]
    }

    fn envelope() -> impl Strategy<Value = Envelope> {
        (tag(), dtype(), 0..5_usize).prop_map(|(tag, dtype, count)| Envelope {
            tag,
            dtype: dtype.into(),
            count,
        })
    }

    fn wanted() -> impl Strategy<Value = Wanted> {
        let source = prop_oneof![Just(None), (0..3_usize).prop_map(|rank| Some(Rank(rank)))];
        let any_or_this = prop_oneof![Just(WantedTag::AnyNumber), tag().prop_map(WantedTag::This)];
        (source, any_or_this).prop_map(|(source, tag)| Wanted { source, tag })
    }

    fn call() -> impl Strategy<Value = RecvCall> {
        let count = prop_oneof![
            (0..5_usize).prop_map(RecvCount::Exactly),
            (0..5_usize).prop_map(RecvCount::UpTo),
        ];
        (wanted(), dtype(), count).prop_map(|(wanted, dtype, count)| RecvCall {
            wanted,
            dtype: dtype.into(),
            count,
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => ((0..3_usize).prop_map(Rank), envelope())
                .prop_map(|(rank, envelope)| Step::Arrive(rank, envelope)),
            4 => call().prop_map(Step::Post),
            1 => wanted().prop_map(Step::Look),
            1 => (0..6_usize).prop_map(Step::Cancel),
        ]
    }

    /// The reference: complete lists of messages and receives, searched from the front.
    #[derive(Default)]
    struct Oracle {
        /// Messages by number; `None` after a receive has taken it.
        messages: Vec<Option<(Rank, Envelope)>>,
        /// Receives by number; `None` after it has completed or was cancelled.
        receives: Vec<Option<RecvCall>>,
    }

    /// The outcome of a receive in the reference.
    #[derive(Debug, PartialEq)]
    enum Expected {
        Message(usize),
        TooLong(usize),
        Waits,
    }

    impl Oracle {
        fn first_message(&self, wanted: &Wanted) -> Option<usize> {
            (0..self.messages.len()).find(|number| {
                self.messages[*number].is_some_and(|(source, one)| wanted.takes(source, one.tag))
            })
        }

        fn is_too_long(call: &RecvCall, sent: &Envelope) -> bool {
            match call.count {
                RecvCount::UpTo(most) => sent.count > most && sent.dtype == call.dtype,
                RecvCount::Exactly(_) => false,
            }
        }

        fn post(&mut self, call: RecvCall) -> Expected {
            let Some(number) = self.first_message(&call.wanted) else {
                self.receives.push(Some(call));
                return Expected::Waits;
            };
            self.receives.push(None);
            let (_, sent) = self.messages[number].unwrap();
            if Self::is_too_long(&call, &sent) {
                return Expected::TooLong(number);
            }
            self.messages[number] = None;
            Expected::Message(number)
        }

        /// The receives that the message ends with an error, and the one that takes it.
        fn arrive(&mut self, source: Rank, sent: Envelope) -> (Vec<usize>, Option<usize>) {
            let mut exceeded = Vec::new();
            for (number, receive) in self.receives.iter_mut().enumerate() {
                let Some(call) = *receive else { continue };
                if !call.wanted.takes(source, sent.tag) {
                    continue;
                }
                *receive = None;
                if !Self::is_too_long(&call, &sent) {
                    self.messages.push(None);
                    return (exceeded, Some(number));
                }
                exceeded.push(number);
            }
            self.messages.push(Some((source, sent)));
            (exceeded, None)
        }
    }

    proptest! {
        #[test]
        fn messages_and_receives_match_as_in_the_oracle(
            steps in prop::collection::vec(step(), 0..60)
        ) {
            let (mut matching, mut oracle) = (Matching::default(), Oracle::default());
            // By the number of the receive; `None` if it completed when it was posted.
            let mut posts: Vec<Option<Posted>> = Vec::new();
            for step in steps {
                match step {
                    Step::Arrive(source, envelope) => {
                        let number = oracle.messages.len();
                        let expected = oracle.arrive(source, envelope);
                        let number_of = |posted: Posted| {
                            posts.iter().position(|known| *known == Some(posted)).unwrap()
                        };
                        let Matched { exceeded, by } =
                            matching.arrive(Arrival { source, envelope, rest: number });
                        let exceeded: Vec<_> = exceeded.into_iter().map(number_of).collect();
                        let by = by.map(|(posted, arrival)| {
                            assert_eq!(arrival.rest, number);
                            number_of(posted)
                        });
                        prop_assert_eq!((exceeded, by), expected);
                    }
                    Step::Post(call) => {
                        let expected = oracle.post(call);
                        let (got, posted) = match matching.post(call) {
                            Post::Matched(arrival) => (Expected::Message(arrival.rest), None),
                            Post::TooLong(source, envelope) => {
                                let first = oracle.first_message(&call.wanted).unwrap();
                                prop_assert_eq!(oracle.messages[first], Some((source, envelope)));
                                (Expected::TooLong(first), None)
                            }
                            Post::Waits(posted) => (Expected::Waits, Some(posted)),
                        };
                        prop_assert_eq!(got, expected);
                        posts.push(posted);
                    }
                    Step::Look(wanted) => {
                        let seen = matching.look(&wanted).map(|arrival| arrival.rest);
                        prop_assert_eq!(seen, oracle.first_message(&wanted));
                    }
                    Step::Cancel(back) => {
                        let Some(number) = posts.len().checked_sub(back + 1) else { continue };
                        let Some(posted) = posts[number] else { continue };
                        let was_there = oracle.receives[number].take().is_some();
                        prop_assert_eq!(matching.cancel(posted), was_there);
                    }
                }
            }
        }
    }
}
