//! Children on Windows, as far as safe code reaches: plain processes, killed one by one.
