//! The arguments of a send to one rank, of a receive from one, and of a probe.
//!
//! Nothing here moves data. Invariant: every value is valid by construction; `capi` has refused
//! invalid arguments.

use std::fmt;

use crate::dtype::ElementType;
use crate::rank::Rank;

/// The tag of a message. A message without a tag (`None`) matches only a receive without a tag,
/// never one for any tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    None,
    Number(u32),
}

/// The properties of a message that its receiver knows before the bytes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub tag: Tag,
    pub dtype: ElementType,
    pub count: usize,
}

/// Which messages a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// `None`: from any rank.
    pub source: Option<Rank>,
    pub tag: WantedTag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedTag {
    This(Tag),
    /// Any tag, but not messages without one.
    AnyNumber,
}

/// A message to send. `bytes` has the length that the envelope implies.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    pub to: Rank,
    pub envelope: Envelope,
    pub bytes: &'a [u8],
    /// The send completes only after it was matched with a receive, however short it is.
    pub synchronous: bool,
}

/// How many elements a message may have for its receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvCount {
    /// A message of another count is a mismatch.
    Exactly(usize),
    /// The capacity of the receive. It does not receive a longer message, and fails alone.
    UpTo(usize),
}

/// The arguments of a receive, without its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvCall {
    pub wanted: Wanted,
    pub dtype: ElementType,
    pub count: RecvCount,
}

/// Reports the source and the envelope of the message that was received.
pub type StatusReport<'a> = Box<dyn FnOnce(Rank, Envelope) + Send + 'a>;

/// A message to receive. `into` has the length that the call implies; the message fills its
/// beginning.
pub struct Incoming<'a> {
    pub call: RecvCall,
    pub into: &'a mut [u8],
    /// Called once, when the receive has succeeded.
    pub report: Option<StatusReport<'a>>,
}

/// A send, a receive or a probe, as error texts name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageCall {
    Send { to: Rank, envelope: Envelope },
    Recv(RecvCall),
    Probe(Wanted),
}

impl Envelope {
    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.dtype.size())
    }
}

impl Wanted {
    pub fn takes(&self, source: Rank, tag: Tag) -> bool {
        let from_there = self.source.is_none_or(|wanted| wanted == source);
        let tag_fits = match self.tag {
            WantedTag::This(wanted) => wanted == tag,
            WantedTag::AnyNumber => tag != Tag::None,
        };
        from_there && tag_fits
    }
}

impl Outgoing<'_> {
    pub fn call(&self) -> MessageCall {
        MessageCall::Send { to: self.to, envelope: self.envelope }
    }
}

impl RecvCall {
    /// Whether a message that the receive takes has more elements than its capacity.
    pub fn is_exceeded_by(&self, envelope: &Envelope) -> bool {
        match self.count {
            RecvCount::UpTo(capacity) => envelope.dtype == self.dtype && envelope.count > capacity,
            RecvCount::Exactly(_) => false,
        }
    }

    /// Whether type and count of a message are as the receive says.
    pub fn agrees_with(&self, envelope: &Envelope) -> bool {
        let count_fits = match self.count {
            RecvCount::Exactly(count) => envelope.count == count,
            RecvCount::UpTo(capacity) => envelope.count <= capacity,
        };
        envelope.dtype == self.dtype && count_fits
    }
}

impl fmt::Display for MessageCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Send { to, envelope: Envelope { tag, dtype, count } } => {
                write!(f, "Send({count} x {dtype} to {to}{})", WantedTag::This(tag))
            }
            Self::Recv(RecvCall { wanted, dtype, count }) => {
                write!(f, "Recv({count} x {dtype} {wanted})")
            }
            Self::Probe(wanted) => write!(f, "Probe({wanted})"),
        }
    }
}

impl fmt::Display for RecvCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(count) => count.fmt(f),
            Self::UpTo(capacity) => write!(f, "up to {capacity}"),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tag = self.tag;
        match self.source {
            Some(source) => write!(f, "from {source}{tag}"),
            None => write!(f, "from any rank{tag}"),
        }
    }
}

impl fmt::Display for WantedTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::This(Tag::None) => Ok(()),
            Self::This(Tag::Number(tag)) => write!(f, ", tag {tag}"),
            Self::AnyNumber => write!(f, ", any tag"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DataType;

    const INT8: ElementType = ElementType::Known(DataType::Int8);
    const INT16: ElementType = ElementType::Known(DataType::Int16);

    #[test]
    fn a_receive_for_any_tag_takes_every_tag_but_no_message_without_one() {
        let any = Wanted { source: None, tag: WantedTag::AnyNumber };
        assert!(any.takes(Rank(3), Tag::Number(0)) && any.takes(Rank(0), Tag::Number(7)));
        assert!(!any.takes(Rank(3), Tag::None));
        let plain = Wanted { source: Some(Rank(1)), tag: WantedTag::This(Tag::None) };
        assert!(plain.takes(Rank(1), Tag::None) && !plain.takes(Rank(1), Tag::Number(0)));
        assert!(!plain.takes(Rank(2), Tag::None));
    }

    #[test]
    fn a_call_is_named_with_all_its_arguments() {
        let envelope = Envelope { tag: Tag::Number(5), dtype: INT8, count: 3 };
        let send = MessageCall::Send { to: Rank(0), envelope };
        assert_eq!(send.to_string(), "Send(3 x int8 to rank 0, tag 5)");
        let plain = Wanted { source: Some(Rank(1)), tag: WantedTag::This(Tag::None) };
        let any = Wanted { source: None, tag: WantedTag::AnyNumber };
        let recv =
            |wanted, count| MessageCall::Recv(RecvCall { wanted, dtype: INT8, count }).to_string();
        assert_eq!(recv(plain, RecvCount::Exactly(4)), "Recv(4 x int8 from rank 1)");
        assert_eq!(recv(any, RecvCount::UpTo(4)), "Recv(up to 4 x int8 from any rank, any tag)");
        assert_eq!(MessageCall::Probe(any).to_string(), "Probe(from any rank, any tag)");
    }

    #[test]
    fn only_a_longer_message_of_the_same_type_exceeds_a_capacity() {
        let wanted = Wanted { source: None, tag: WantedTag::AnyNumber };
        let recv = |count| RecvCall { wanted, dtype: INT16, count };
        let sent = |dtype, count| Envelope { tag: Tag::Number(0), dtype, count };
        let (up_to, exactly) = (recv(RecvCount::UpTo(4)), recv(RecvCount::Exactly(4)));
        let longer = sent(INT16, 5);
        assert!(up_to.is_exceeded_by(&longer) && !exactly.is_exceeded_by(&longer));
        assert!(!up_to.is_exceeded_by(&sent(INT16, 4)));
        assert!(!up_to.is_exceeded_by(&sent(INT8, 5)), "it is a mismatch");
        let shorter = sent(INT16, 3);
        assert!(up_to.agrees_with(&shorter) && !exactly.agrees_with(&shorter));
        assert!(!up_to.agrees_with(&sent(INT8, 3)));
    }
}
