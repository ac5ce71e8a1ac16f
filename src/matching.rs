//! The posted receives and the unexpected messages of one rank of one communicator.
//!
//! Pure: sends nothing, waits for nothing, reads no clock. A receive takes the first message to
//! arrive that it accepts. A message goes to the first posted receive that accepts it. Invariants:
//! - messages of one sender arrive here in the order in which it sent them, so no message overtakes
//!   another that the same receive accepts, whatever their tags and sizes;
//! - no posted receive accepts an unexpected message: they would have been matched.

use std::collections::VecDeque;

use crate::message::{Envelope, Wanted};
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
    posted: VecDeque<(Posted, Wanted)>,
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
    Waits(Posted),
}

impl<M> Matching<M> {
    /// Takes the first unexpected message that the receive accepts; else posts the receive.
    pub fn post(&mut self, wanted: Wanted) -> Post<M> {
        if let Some(arrival) = self.first(&wanted).and_then(|at| self.unexpected.remove(at)) {
            return Post::Matched(arrival);
        }
        let posted = Posted(self.next);
        self.next += 1;
        self.posted.push_back((posted, wanted));
        Post::Waits(posted)
    }

    /// Gives a message to the first posted receive that accepts it. `None` if no receive does: the
    /// message is then unexpected and kept.
    pub fn arrive(&mut self, arrival: Arrival<M>) -> Option<(Posted, Arrival<M>)> {
        let accepts =
            |(_, wanted): &(Posted, Wanted)| wanted.takes(arrival.source, arrival.envelope.tag);
        match self.posted.iter().position(accepts).and_then(|at| self.posted.remove(at)) {
            Some((posted, _)) => Some((posted, arrival)),
            None => {
                self.unexpected.push_back(arrival);
                None
            }
        }
    }

    /// The message that a receive posted now would take.
    #[cfg(feature = "testing")]
    pub fn probe(&self, wanted: &Wanted) -> Option<&Arrival<M>> {
        self.first(wanted).map(|at| &self.unexpected[at])
    }

    /// Withdraws a posted receive. False if it has been matched.
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
    use crate::message::{Tag, WantedTag};

    #[derive(Clone, Debug)]
    enum Step {
        Arrive(Rank, Tag),
        Post(Wanted),
        Probe(Wanted),
        /// Cancels the receive that was posted `.0` posts before the last one.
        Cancel(usize),
    }

    fn tag() -> impl Strategy<Value = Tag> {
        prop_oneof![Just(Tag::None), (0..3_u32).prop_map(Tag::Number)]
    }

    fn wanted() -> impl Strategy<Value = Wanted> {
        let source = prop_oneof![Just(None), (0..3_usize).prop_map(|rank| Some(Rank(rank)))];
        let any_or_this = prop_oneof![Just(WantedTag::AnyNumber), tag().prop_map(WantedTag::This)];
        (source, any_or_this).prop_map(|(source, tag)| Wanted { source, tag })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => ((0..3_usize).prop_map(Rank), tag())
                .prop_map(|(rank, tag)| Step::Arrive(rank, tag)),
            4 => wanted().prop_map(Step::Post),
            1 => wanted().prop_map(Step::Probe),
            1 => (0..6_usize).prop_map(Step::Cancel),
        ]
    }

    /// The reference: complete lists of messages and receives, searched from the front.
    #[derive(Default)]
    struct Oracle {
        /// Messages by number; `None` after a receive has taken it.
        messages: Vec<Option<(Rank, Tag)>>,
        /// Receives by number; `None` after it was matched or cancelled.
        receives: Vec<Option<Wanted>>,
    }

    impl Oracle {
        fn first_message(&self, wanted: &Wanted) -> Option<usize> {
            (0..self.messages.len()).find(|number| {
                self.messages[*number].is_some_and(|(source, tag)| wanted.takes(source, tag))
            })
        }

        fn first_receive(&self, source: Rank, tag: Tag) -> Option<usize> {
            (0..self.receives.len())
                .find(|number| self.receives[*number].is_some_and(|one| one.takes(source, tag)))
        }
    }

    fn arrival(source: Rank, tag: Tag, number: usize) -> Arrival<usize> {
        Arrival {
            source,
            envelope: Envelope { tag, dtype: DataType::Int8, count: 0 },
            rest: number,
        }
    }

    proptest! {
        #[test]
        fn messages_and_receives_match_as_in_the_oracle(
            steps in prop::collection::vec(step(), 0..60)
        ) {
            let (mut matching, mut oracle) = (Matching::default(), Oracle::default());
            let mut posts = Vec::new(); // by the number of the receive; None if matched when posted
            for step in steps {
                match step {
                    Step::Arrive(source, tag) => {
                        let number = oracle.messages.len();
                        let expected = oracle.first_receive(source, tag);
                        let given = matching.arrive(arrival(source, tag, number));
                        let given = given.map(|(posted, arrival)| {
                            assert_eq!(arrival.rest, number);
                            posts.iter().position(|known| *known == Some(posted)).unwrap()
                        });
                        prop_assert_eq!(given, expected);
                        oracle.messages.push(expected.is_none().then_some((source, tag)));
                        if let Some(receive) = expected {
                            oracle.receives[receive] = None;
                        }
                    }
                    Step::Post(wanted) => {
                        let expected = oracle.first_message(&wanted);
                        match matching.post(wanted) {
                            Post::Matched(arrival) => {
                                prop_assert_eq!(Some(arrival.rest), expected);
                                oracle.messages[arrival.rest] = None;
                                oracle.receives.push(None);
                                posts.push(None);
                            }
                            Post::Waits(posted) => {
                                prop_assert_eq!(None, expected);
                                oracle.receives.push(Some(wanted));
                                posts.push(Some(posted));
                            }
                        }
                    }
                    Step::Probe(wanted) => {
                        let seen = matching.probe(&wanted).map(|arrival| arrival.rest);
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
