//! The arguments of a send to one rank and of a receive from one.
//!
//! Nothing here moves data. Invariant: every value is valid by construction; `capi` has refused
//! invalid arguments.

use std::fmt;

use crate::dtype::DataType;
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
    pub dtype: DataType,
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

/// A message to receive: exactly `count` elements of `dtype`, which fill `into`.
pub struct Incoming<'a> {
    pub wanted: Wanted,
    pub dtype: DataType,
    pub count: usize,
    pub into: &'a mut [u8],
}

/// A send or a receive, as error texts name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageCall {
    Send { to: Rank, envelope: Envelope },
    Recv { wanted: Wanted, dtype: DataType, count: usize },
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

impl Incoming<'_> {
    pub fn call(&self) -> MessageCall {
        MessageCall::Recv { wanted: self.wanted, dtype: self.dtype, count: self.count }
    }
}

impl fmt::Display for MessageCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Send { to, envelope: Envelope { tag, dtype, count } } => {
                write!(f, "Send({count} x {dtype} to {to}{})", WantedTag::This(tag))
            }
            Self::Recv { wanted: Wanted { source: Some(from), tag }, dtype, count } => {
                write!(f, "Recv({count} x {dtype} from {from}{tag})")
            }
            Self::Recv { wanted: Wanted { source: None, tag }, dtype, count } => {
                write!(f, "Recv({count} x {dtype} from any rank{tag})")
            }
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
        let envelope = Envelope { tag: Tag::Number(5), dtype: DataType::Int8, count: 3 };
        let send = MessageCall::Send { to: Rank(0), envelope };
        assert_eq!(send.to_string(), "Send(3 x int8 to rank 0, tag 5)");
        let recv = |source, tag| {
            let wanted = Wanted { source, tag };
            MessageCall::Recv { wanted, dtype: DataType::Int8, count: 4 }.to_string()
        };
        let one = recv(Some(Rank(1)), WantedTag::This(Tag::None));
        assert_eq!(one, "Recv(4 x int8 from rank 1)");
        assert_eq!(recv(None, WantedTag::AnyNumber), "Recv(4 x int8 from any rank, any tag)");
    }
}
