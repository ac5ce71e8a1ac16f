//! Executes a target on its corpus, without a fuzzer, as `make test` does on a stable compiler.

use arbitrary::{Arbitrary, Unstructured};

/// Defines a target as a `main` that executes the corpus. Under the fuzzer, libfuzzer's macro of
/// the same name is used instead.
#[cfg(not(fuzzing))]
#[macro_export]
macro_rules! fuzz_target {
    (init: $init:block, |$input:ident: $type:ty| $body:block) => {
        fn main() {
            $init
            $crate::replay::replay(env!("CARGO_BIN_NAME"), |bytes| {
                if let Some($input) = $crate::replay::parse::<$type>(bytes) {
                    $body
                }
            });
        }
    };
    (|$input:ident: &[u8]| $body:block) => {
        fn main() {
            $crate::replay::replay(env!("CARGO_BIN_NAME"), |$input: &[u8]| $body);
        }
    };
}

/// Parses bytes to the input that the fuzzer derives from them.
pub fn parse<'a, T: Arbitrary<'a>>(bytes: &'a [u8]) -> Option<T> {
    T::arbitrary_take_rest(Unstructured::new(bytes)).ok()
}

/// Calls the target with every input of its corpus. A panic ends the process and names the input.
pub fn replay(target: &str, execute: impl Fn(&[u8])) {
    let folder = format!("{}/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut inputs: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
        .map(|input| input.unwrap().path())
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{folder} is empty");
    for input in &inputs {
        let named = Named(input.display().to_string());
        execute(&std::fs::read(input).unwrap());
        drop(named);
    }
    println!("{target}: {} inputs", inputs.len());
}

/// Prints the path of the current input if the target panics.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was {}", self.0);
        }
    }
}
