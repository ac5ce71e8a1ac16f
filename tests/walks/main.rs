//! Checks the walks of ARCHITECTURE.md: the files of `src/` that a call passes through, in order.
//!
//! Two ranks run as processes of this program. One of them sets breakpoints at the points of a walk
//! (`breakpoint`). Its stack at each point, resolved with the line table of the program, names the
//! files. They must be those that ARCHITECTURE.md lists.
#![expect(unsafe_code, reason = "the C API takes pointers, and breakpoints are set in code")]

#[cfg(target_arch = "x86_64")]
mod breakpoint;
#[cfg(target_arch = "x86_64")]
mod cuda;

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("walks: skipped, breakpoints are set on x86-64 alone");
}

#[cfg(target_arch = "x86_64")]
mod walk;

#[cfg(target_arch = "x86_64")]
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [first, name, rank, id, role, points @ ..] if first == "rank" => {
            walk::rank(name, rank, id, role, points);
        }
        _ => walk::check_all(),
    }
}
