//! Defects that were found, each with the smallest store that shows it and the story of what went
//! wrong. A test here is named after the wrong behaviour's opposite, and is never deleted.
