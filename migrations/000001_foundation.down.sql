-- The role stays: it belongs to the cluster, and other databases may use it.
drop table api_keys;
drop table merchants;
drop function distribute_function(regprocedure);
drop function distribute_table(regclass);
