//! The walks of ARCHITECTURE.md, executed: which files of `src/` a call runs through on its caller's
//! thread, in the order of their first instruction.
//!
//! Two ranks are processes of this program. One executes a call instruction by instruction (`step`);
//! the line table of the program says which file each instruction comes from. Each file must be in
//! the walk, or be listed as one that walks leave out; each file of the walk must be executed.
#![expect(unsafe_code, reason = "the C border takes pointers, and stepping is done by signals")]

#[cfg(target_arch = "x86_64")]
mod cuda;
#[cfg(target_arch = "x86_64")]
mod step;

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("walks: skipped, calls are stepped on x86-64 alone");
}

#[cfg(target_arch = "x86_64")]
mod walk;

#[cfg(target_arch = "x86_64")]
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [first, name, rank, id, role, wanted @ ..] if first == "rank" => {
            walk::rank(name, rank, id, role, wanted);
        }
        _ => walk::check_all(),
    }
}
