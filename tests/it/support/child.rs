//! What the processes have in common that tests start from their own binary.

use std::io::Read;

/// Ends this process when the parent has died, and with it the other end of the pipe. A panic ends
/// it too, whatever thread it is in.
pub fn end_with_the_parent() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(3);
    }));
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(4);
    });
}
