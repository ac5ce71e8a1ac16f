//! The floating-point environment in which floats are folded: the default one.
//!
//! A program or a library that it loads may flush subnormal numbers (-ffast-math), choose another
//! rounding or unmask exceptions, and a thread inherits this from its creator. Each rank folds for
//! itself, so a rank with another environment would get other bits than its peers. So every
//! operation on an array of floats reads the control register, and changes it only if it is not the
//! default.
//!
//! Leaves the arithmetic to `floats`. Functions of the program run in the environment of their
//! thread. Invariant: the environment of the thread is the same after a fold as before, except for
//! exception flags (inexact and others), which a fold raises as other arithmetic does.
#![expect(unsafe_code, reason = "the control register is read and written by instructions")]

use std::arch::asm;

/// The control register of floating-point arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control(Register);

#[cfg(target_arch = "x86_64")]
type Register = u32;
#[cfg(target_arch = "aarch64")]
type Register = u64;

#[cfg(target_arch = "x86_64")]
impl Control {
    /// MXCSR: to nearest even, subnormals kept, all exceptions masked.
    pub(super) const DEFAULT: Self = Self(0x1f80);
    /// The bits of MXCSR that are not exception flags.
    const CONTROL: Register = 0xffc0;

    #[inline(always)]
    fn read() -> Self {
        let mut register = 0;
        // SAFETY: writes the four bytes of `register`.
        unsafe { asm!("stmxcsr [{}]", in(reg) &mut register, options(nostack, preserves_flags)) };
        Self(register)
    }

    #[inline(always)]
    fn load(self) {
        // SAFETY: reads four bytes that came from MXCSR or are a valid value of it.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &self.0, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
impl Control {
    /// FPCR: to nearest even, subnormals kept, NaNs propagated, no exception traps. Exception flags
    /// are in another register.
    pub(super) const DEFAULT: Self = Self(0);
    const CONTROL: Register = Register::MAX;

    #[inline(always)]
    fn read() -> Self {
        let register;
        // SAFETY: every thread may read FPCR.
        unsafe { asm!("mrs {}, fpcr", out(reg) register, options(nostack, preserves_flags)) };
        Self(register)
    }

    #[inline(always)]
    fn load(self) {
        // SAFETY: a value that came from FPCR, or 0, which is always valid.
        unsafe { asm!("msr fpcr, {}", in(reg) self.0, options(nostack, preserves_flags)) };
    }
}

impl Control {
    #[inline(always)]
    fn is_default(self) -> bool {
        self.0 & Self::CONTROL == Self::DEFAULT.0
    }
}

/// Whether this thread has the default environment.
#[inline(always)]
pub(super) fn is_default() -> bool {
    Control::read().is_default()
}

/// Restores the environment of the caller when dropped, also if a fold panics.
struct Restore(Control);

impl Drop for Restore {
    fn drop(&mut self) {
        self.0.load();
    }
}

/// Executes `work` in the default environment.
///
/// The compiler does not know that arithmetic depends on the environment and may move it across the
/// change. So `work` calls a function that is never inlined, and computes nothing itself.
#[inline]
pub(super) fn in_default(work: impl FnOnce()) {
    let caller = Control::read();
    if caller.is_default() {
        work();
    } else {
        in_other(caller, Control::DEFAULT, work);
    }
}

#[cold]
fn in_other(caller: Control, other: Control, work: impl FnOnce()) {
    let _restore = Restore(caller);
    other.load();
    work();
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    pub(in crate::reduce) const OTHERS: [Control; 6] = [
        Control(0x1f80 | 0x8040), // subnormal results and operands are zeros
        Control(0x1f80 | 0x2000), // down
        Control(0x1f80 | 0x4000), // up
        Control(0x1f80 | 0x6000), // towards zero
        Control(0x1f80 | 0xe040),
        Control(0), // every exception is a signal
    ];
    #[cfg(target_arch = "aarch64")]
    pub(in crate::reduce) const OTHERS: [Control; 5] = [
        Control(1 << 24), // subnormal results and operands are zeros
        Control(2 << 22), // down
        Control(1 << 22), // up
        Control(3 << 22), // towards zero
        Control(1 << 25), // every NaN is the default NaN
    ];

    /// Executes `work` in that environment, and checks that `work` leaves it unchanged.
    pub(in crate::reduce) fn in_environment(control: Control, work: impl FnOnce()) {
        let mut after = control;
        in_other(Control::read(), control, || {
            work();
            after = Control::read();
        });
        assert_eq!(after.0 & Control::CONTROL, control.0, "a fold has changed the environment");
    }
}
