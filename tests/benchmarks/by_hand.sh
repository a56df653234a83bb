#!/bin/bash
# ResumeProgram of the floor: tells the bench which nodes to start, and no more. SPOOL is beside the script's folder.
echo "$1" >>"${0%/*}/../run/resumed"
