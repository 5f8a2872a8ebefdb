drop table recon_notes;
drop table recon_exceptions;
drop table recon_runs;
drop table settlement_claims;
drop table settlement_lines;
drop table settlement_files;
