//! The walks of ARCHITECTURE.md, executed: which files of `src/` a call runs through, in order.
//!
//! Two ranks are processes of this program. One has breakpoints at the points of a walk
//! (`breakpoint`), and its stack at each names the files; the line table of the program says which
//! file an instruction comes from. The files of the stacks and those of the page must be the same.
#![expect(unsafe_code, reason = "the C border takes pointers, and breakpoints are set in code")]

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
